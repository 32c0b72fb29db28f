"""Malformed YAML in job files: each is refused in one sentence, without a traceback."""

from pathlib import Path

import pytest
from everspot_cli.errors import CliError
from everspot_cli.specs import read_spec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def refused(path: Path) -> CliError:
    with pytest.raises(CliError) as caught:
        read_spec(path)
    return caught.value


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)
)
MERGE_BOMB = "k: &a0 {x: 1}\n" + "".join(f"k{n}: &a{n + 1} {{<<: [*a{n}, *a{n}], z{n}: *a{n}}}\n" for n in range(60))
CHAIN = "k: &a0 [x]\n" + "".join(f"k{n}: &a{n + 1} [*a{n}]\n" for n in range(2000))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more values than the 20000"),
        (MERGE_BOMB, "more values than the 20000"),
        (CHAIN, "nested more than 32 levels deep in line"),
        ("a: &a [*a]\n", "an alias that stands for itself, in line 1"),
        ("[" * 900 + "]" * 900, "nested more than 32 levels deep"),
        ("{a: " * 900 + "1" + "}" * 900, "nested more than 32 levels deep"),
        ("name: a\nname: b\n", "'name' is given twice in line 2"),
        ("resources: {vcpus: 1, vcpus: 2}\n", "'vcpus' is given twice in line 1"),
        ("code: !!binary aGVsbG8=\n", "kind 'binary' is not allowed in line 1"),
        ("code: !!python/name:os.system\n", "kind 'os.system' is not allowed"),
        ("tags: !!set {a, b}\n", "kind 'set' is not allowed"),
        ("? [a]\n: b\n", "a key has to be a text in line 1"),
        ("a: b: c\n", "mapping values are not allowed here"),
        ("---\na: 1\n---\nb: 2\n", "expected a single document"),
        ("x: \0\n", "unacceptable character"),
        ("", "must be a mapping of fields"),
        ("- a\n", "must be a mapping of fields"),
    ],
)
def test_a_text_that_is_no_honest_yaml_is_refused_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    error = refused(path)
    assert message in str(error)
    assert len(str(error)) < 400 + len(str(path))
    assert error.problems == []


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        (
            "retries: {errors: " + "9" * 5000 + "}\n",
            "line 1, retries.errors",
            "larger than some readers' whole numbers",
        ),
        ("x: !!int ''\n", "line 1, x", "has the tag 'int': leave it out"),
    ],
)
def test_a_number_that_not_all_readers_have_is_refused(tmp_path: Path, text: str, field: str, problem: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    (only,) = refused(tmp_path / "job.yaml").problems
    assert only["field"] == field and problem in only["problem"] and len(only["problem"]) < 300


def test_a_file_is_read_to_its_limit_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"name: mine\n#" + b"x" * 50_000_000)
    assert str(refused(path)) == f"{path} is larger than 256 KiB"
    assert str(refused(Path("/dev/zero"))) == "/dev/zero is larger than 256 KiB"
    path.write_bytes(b"name: \xff\xfe")
    assert str(refused(path)) == f"{path} is no text in UTF-8: byte 7 is wrong"
    assert "cannot be read" in str(refused(tmp_path))
    assert "cannot be read" in str(refused(Path("a\0b")))


@settings(
    max_examples=settings.default.max_examples * 3 // 2, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=300))
def test_bytes_that_mean_nothing_are_refused_without_a_traceback(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "noise.yaml"
    path.write_bytes(data)
    assert refused(path).code in (1, 3)
