"""The same ids as Hugging Face's `tokenizers` gives: for every character, for hostile text, and for AG News.

Runs where a Python has tokenizers ($FARTHING_TORCH_PYTHON names one for scripts/run-tests). The test on AG News needs
$FARTHING_AG_NEWS, a folder with the set's CSV files, and $FARTHING_BERT_VOCAB, a vocab.txt; it is skipped without."""
import csv
import gzip
import itertools
import json
import os
import random
import struct
import subprocess
import unicodedata
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: set FARTHING_TORCH_PYTHON to a Python that has it")
from tokenizers.implementations import BertWordPieceTokenizer  # noqa: E402
from tokenizers.processors import TemplateProcessing  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve().parent
ENCODE = BUILD / "tests" / "encode_texts"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def encode(path, texts, longest=0):
    """The ids and segments that farthing gives; a text is a str, bytes, or a pair of them."""
    sent = bytearray()
    for text in texts:
        parts = [part if isinstance(part, bytes) else part.encode() for part in (text if isinstance(text, tuple) else (text,))]
        sent += struct.pack("<ii", len(parts[0]), len(parts[1]) if len(parts) == 2 else -1) + b"".join(parts)
    done = subprocess.run([ENCODE, str(path), str(longest)], input=bytes(sent), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    encoded, at = [], 0
    for _ in texts:
        count, first = struct.unpack_from("<ii", done.stdout, at)
        ids = list(struct.unpack_from(f"<{count}i", done.stdout, at + 8))
        encoded.append((ids, [0] * first + [1] * (count - first)))
        at += 8 + 4 * count
    return encoded


def decode(text):
    return tuple(map(decode, text)) if isinstance(text, tuple) else text.decode(errors="replace") if isinstance(text, bytes) else text


def check(path, theirs, texts, longest=0):
    if longest:
        theirs.enable_truncation(longest)
    else:
        theirs.no_truncation()
    expected = theirs.encode_batch([decode(text) for text in texts])
    wrong = [(text, ours, (their.ids, their.type_ids)) for text, ours, their in zip(texts, encode(path, texts, longest), expected)
             if ours != (their.ids, their.type_ids)]
    for text, ours, their in wrong[:3]:
        print(ascii(text)[:500], ours, their, sep="\n")
    assert not wrong, f"{len(wrong)} of {len(texts)} texts differ"


def open_theirs(vocabulary, **options):
    return BertWordPieceTokenizer(str(vocabulary), **options)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A vocabulary in which each character that Unicode 14 knows is a token, at a word's beginning and inside, and some longer ones."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    characters = [chr(code) for code in range(0x21, 0x30000) if unicodedata.category(chr(code)) not in ("Cs", "Co", "Cn", "Zs")
                  and not chr(code).isspace()]
    longer = ["the", "##ing", "##er", "un", "##aff", "##able", "naive", "cafe", "Cafe", "straße", "##\u0301x", "中国", "##ああ"]
    path.write_bytes("\n".join([*SPECIAL, *characters, *longer, *("##" + character for character in characters)]).encode() + b"\n")
    return path


def write_case(folder, vocabulary, lower):
    (folder / "vocab.txt").symlink_to(vocabulary)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    return folder


@pytest.mark.parametrize("lower", [True, False])
def test_every_character(tmp_path, vocabulary, lower):
    codes = [*range(0xD800), *range(0xE000, 0x110000)]
    texts = [" ".join(f"x{chr(code)}y" for code in codes[i:i + 64]) for i in range(0, len(codes), 64)]
    check(write_case(tmp_path, vocabulary, lower), open_theirs(vocabulary, lowercase=lower), texts)


MARKS = [chr(code) for code in range(0x300, 0x1E950) if unicodedata.combining(chr(code))]
ODD = "\0\t\n\v\f\r\x1b\x7f\x85\xa0\xad\u200b\u200d\u2028\u202e\u3000\ufeff\ufffd\ufe0f\u0130\u1e9e\ufb01\u212b\u1fef\u037e\u2260\uac00\ud7a3가\U0001f469\U0001f1e9\U000e0041\uf8ff\U0010ffff"
WORDS = ["unaffable", "The", "running", "NAÏVE", "Straße", "中国", "ああ", "Ελλάδα", "ΣΊΣΥΦΟΣ", "İstanbul", "Привет", "שָׁלוֹם", "हिन्दी", "ไทย", "한국어",
         "Việt", "e\u0301\u0323", "👩\u200d👩\u200d👧", "🇩🇪", "[SEP]", "[CLS", "[MASK]", "[[UNK]]", "[pad]", "#", "##ing", "don't", "U.S.A.", "$9.99", "a_b", "…", "—"]


def draw_character(draw):
    kind = draw.randrange(8)
    if kind == 0:
        return draw.choice(MARKS)
    if kind == 1:
        return draw.choice(ODD)
    limit = (0x80, 0x250, 0x3000, 0x10000, 0x30000, 0x110000)[min(kind - 2, 5)]
    code = draw.randrange(limit)
    return chr(code) if not 0xD800 <= code < 0xE000 else " "


def draw_text(draw):
    kind = draw.randrange(6)
    if kind == 0:  # any characters
        return "".join(draw_character(draw) for _ in range(draw.randrange(40)))
    if kind == 1:  # words and what may stand between them
        return "".join(draw.choice(WORDS) + draw.choice([" ", "", "  ", "\n", draw_character(draw)]) for _ in range(draw.randrange(12)))
    if kind == 2:  # letters under many marks
        return "".join(draw.choice("aeiouAEx각ά") + "".join(draw.choices(MARKS, k=draw.randrange(6))) for _ in range(draw.randrange(8)))
    if kind == 3:  # any bytes
        return draw.randbytes(draw.randrange(60))
    if kind == 4:  # text with broken bytes
        text = bytearray("".join(draw.choice(WORDS) + " " for _ in range(6)).encode())
        for _ in range(draw.randrange(1, 8)):
            text[draw.randrange(len(text))] = draw.randrange(256)
        return bytes(text)
    return draw.choice(["a", "é", "中", "あ", ".", "e\u0301", "\u0301", "\u302e", "\ud7a3", "\U0001f469"]) * draw.choice([98, 99, 100, 101, 102, 500])


def draw_texts(count, seed):
    draw = random.Random(seed)
    return [draw_text(draw) for _ in range(count)]


@pytest.mark.parametrize("lower", [True, False])
def test_hostile_text(tmp_path, vocabulary, lower):
    check(write_case(tmp_path, vocabulary, lower), open_theirs(vocabulary, lowercase=lower), draw_texts(12000, 1))


def test_long_words(tmp_path, vocabulary):
    long = 1 << 17
    texts = ["a" * (1 << 20), "\u0301" * long, "a" + "\u0301" * long, "\u302e\u1dfb" * (long // 2), "中" * 5000, "." * 5000, "\0" * long, b"\xff" * long,
             b"\xf0\x9f" * 1000, "a" * 100 + " " + "b" * 101, "x" + "\U0010ffff" * long + "y", "[SEP]" * 1000, "[" * 10000]
    check(write_case(tmp_path, vocabulary, True), open_theirs(vocabulary), texts)
    check(tmp_path, open_theirs(vocabulary), texts, longest=20)


@pytest.mark.parametrize("longest", [3, 4, 5, 8, 17, 64])
def test_pairs_are_cut_alike(tmp_path, vocabulary, longest):
    texts = [text for text in draw_texts(1200, 2) if longest > 3 or not isinstance(text, bytes)]
    theirs = open_theirs(vocabulary)
    theirs.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    write_case(tmp_path, vocabulary, True)
    check(tmp_path, theirs, texts, longest)
    check(tmp_path, theirs, list(zip(texts[::2], texts[1::2])), longest)


def test_every_normalizer_option_in_tokenizer_json(tmp_path, vocabulary):
    texts = draw_texts(700, 3)
    for number, (clean, chinese, accents, lower) in enumerate(itertools.product([True, False], [True, False], [None, True, False], [True, False])):
        theirs = open_theirs(vocabulary, clean_text=clean, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower)
        path = tmp_path / "tokenizer.json"
        theirs.save(str(path))
        check(path, theirs, texts[number % 3::3])


@pytest.mark.parametrize("options", [{}, {"lowercase": False}, {"strip_accents": False, "clean_text": False}])
def test_tokenizers_reads_our_json(tmp_path, vocabulary, options):
    theirs = open_theirs(vocabulary, **options)
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    again = tokenizers.Tokenizer.from_str(subprocess.run([ENCODE, path], check=True, capture_output=True, text=True).stdout)
    assert again.get_vocab() == theirs.get_vocab()
    texts = draw_texts(500, 4)
    check(path, again, texts)
    check(path, again, list(zip(texts[::2], texts[1::2])), longest=16)


def test_a_folder_means_the_same_to_transformers(tmp_path, vocabulary):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    (tmp_path / "vocab.txt").symlink_to(vocabulary)
    names = {"unk_token": "[UNK]", "cls_token": "[MASK]", "sep_token": "[PAD]"}  # unusual, so that they are seen
    for number, config in enumerate([{"do_lower_case": False}, {"do_lower_case": True, "strip_accents": False}, {"do_lower_case": True, **names}]):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **config}))
        check(tmp_path, transformers.BertTokenizerFast.from_pretrained(tmp_path).backend_tokenizer, draw_texts(500, 5 + number))


def read_news(folder):
    for path in sorted(Path(folder).glob("*.csv*")):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="") as file:
            for row in csv.reader(file):
                yield " ".join(row[1:])


@pytest.mark.parametrize("lower", [True, False])
def test_ag_news(tmp_path, lower):
    folder, vocabulary = os.environ.get("FARTHING_AG_NEWS"), os.environ.get("FARTHING_BERT_VOCAB")
    if not folder or not vocabulary:
        pytest.skip("set FARTHING_AG_NEWS to a folder of AG News' CSV files and FARTHING_BERT_VOCAB to a vocab.txt")
    texts = list(read_news(folder))
    assert len(texts) > 5000
    check(write_case(tmp_path, vocabulary, lower), open_theirs(vocabulary, lowercase=lower), texts)
    check(tmp_path, open_theirs(vocabulary, lowercase=lower), texts, longest=128)
