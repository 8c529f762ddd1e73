"""The folders of src/ as layers: a folder includes headers only of what CMakeLists.txt links it with.

The linker checks functions. A header of which only types are used would pass it unnoticed."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read_links():
    """Each folder and the folders its library is linked with, directly."""
    rows = re.findall(r"^farthing_module\((\w+)([^)]*)\)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    return {name: set(re.findall(r"\bfth_(\w+)", libraries)) for name, libraries in rows}


def find_reachable(links, folder):
    reached, waiting = {folder}, [folder]
    while waiting:
        for other in links[waiting.pop()] - reached:
            reached.add(other)
            waiting.append(other)
    return reached


def find_includes(folder):
    for path in sorted((ROOT / "src" / folder).rglob("*")):
        if path.suffix in (".c", ".h", ".cu", ".cuh"):
            for included in re.findall(r'^#include "(\w+)/', path.read_text(), re.M):
                yield path.relative_to(ROOT), included


def test_folders_include_only_what_they_are_linked_with():
    links = read_links()
    assert {"base", "data", "backend", "train"} <= set(links)
    wrong = [
        f"{path} includes a header of {included}"
        for folder in links
        for path, included in find_includes(folder)
        if included not in find_reachable(links, folder)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_folder_is_linked_with_itself_through_others():
    links = read_links()
    for folder, linked in links.items():
        for other in linked:
            assert folder not in find_reachable(links, other), f"{folder} and {other} need each other"
