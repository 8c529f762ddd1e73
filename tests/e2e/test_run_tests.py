"""scripts/run-tests counts what cmocka prints: passed, failed and skipped cases."""

import importlib.machinery
import importlib.util
import pathlib

PATH = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run-tests"


def load():
    loader = importlib.machinery.SourceFileLoader("run_tests", str(PATH))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
    loader.exec_module(module)
    return module


count_cases = load().count_cases

OUTPUT = """[==========] flat vectors: Running 4 test(s).
[ RUN      ] test_add
SKIP cuda: there is no device 'cuda'
SKIP cuda: there is no device 'cuda'
[       OK ] test_add
[ RUN      ] test_norm
[       OK ] test_norm
[ RUN      ] test_gather
SKIP cuda: there is no device 'cuda'
[  SKIPPED ] test_gather
[ RUN      ] test_copy
[  ERROR   ] --- 0x1 != 0x2
[  FAILED  ] test_copy
[==========] 4 test(s) run.
[  PASSED  ] 2 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] test_gather
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] test_copy
"""


def test_a_case_is_skipped_on_each_device_that_is_missing():
    assert count_cases(OUTPUT, "fail") == (2, 1, 2)


def test_two_groups_may_have_cases_of_one_name():
    group = """[==========] group: Running 1 test(s).
[ RUN      ] test_same
[  SKIPPED ] test_same
[==========] 1 test(s) run.
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] test_same
"""
    assert count_cases(group + group, "run") == (0, 0, 2)


def test_a_crash_after_the_last_case_is_a_failure():
    done = "[ RUN      ] test_a\n[       OK ] test_a\n[==========] 1 test(s) run.\n"
    assert count_cases(done, "run") == (1, 0, 0)
    assert count_cases(done, "fail") == (1, 1, 0)


def test_a_crash_within_a_case_is_one_failure():
    assert count_cases("[ RUN      ] test_a\n[       OK ] test_a\n[ RUN      ] test_b\n", "fail") == (1, 1, 0)


def test_a_program_without_cases_counts_as_one():
    assert count_cases("fuzzed\n", "run") == (1, 0, 0)
    assert count_cases("", "fail") == (0, 1, 0)
    assert count_cases("", "notrun") == (0, 0, 1)
