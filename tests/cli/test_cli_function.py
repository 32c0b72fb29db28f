"""`everspot.job`: functions of notebooks, scripts and modules as jobs. What is submitted is run as an agent runs it."""

import importlib
import inspect
import itertools
import json
import linecache
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import everspot
import pytest
from everspot_cli.functions import run_function
from everspot_cli.functions.decorator import JobFunction
from everspot_cli.functions.packing import pack_function
from everspot_core.jobs.records import Reason

from tests.cli.conftest import World

pytestmark = pytest.mark.filterwarnings("ignore:nothing in the code mentions the folder checkpoints")

CELL = itertools.count(1)


class Notebook:
    """A namespace in which cells run as IPython runs them: each is compiled by a name of its own, under which
    linecache has its source (IPython.core.compilerop)."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "everspot": everspot}

    def run(self, source: str) -> Any:
        """Run a cell; return its variable `train`."""
        source = textwrap.dedent(source)
        name = f"/tmp/ipykernel_{os.getpid()}/{next(CELL)}.py"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), self.names)
        return self.names.get("train")


@pytest.fixture
def notebook(world: World, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    monkeypatch.setenv("EVERSPOT_STORE", world.url)
    return Notebook()


Finish = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def finish(world: World, tmp_path: Path) -> Finish:
    def finish_job(job: str) -> subprocess.CompletedProcess[str]:
        """Run the code of a job as the agent does, in a process that has none of this one's modules, and end the job
        as it ended."""
        submission = world.store.jobs.get(job).value
        folder = tmp_path / f"work-{job}"
        world.store.fetch_code(submission, folder)
        outputs = folder / "outputs"
        environment = {"PATH": os.environ["PATH"], "EVERSPOT_OUTPUT_DIR": str(outputs)}
        command = [sys.executable, "-m", "everspot_train.worker", *submission.spec.entrypoint]
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if "i-spot1" not in world.store.instances.scan():
            world.launch("i-spot1", 0)
        world.assign(job, "i-spot1", 10)
        world.start(job, 20)
        if ended.returncode:
            world.leave(job, 100, Reason.BUDGET, detail=ended.stderr.splitlines()[-1])
        else:
            world.store.outputs(job).keep(1, outputs, lambda: True)
            world.finish(job, 100, 50, 0.9)
        return ended

    return finish_job


def test_a_function_of_a_notebook_is_a_job_with_all_that_it_uses(
    world: World, notebook: Notebook, finish: Finish
) -> None:
    notebook.run("import math, os.path\nfrom collections import Counter as Tally\nRATES = {'fast': [0.5, 1]}\n")
    notebook.run("""
        def scale(value):
            return value * RATES["fast"][0] * math.pi

        class Model:
            bias: float = 1.0

            def forward(self, value):
                return scale(value) + self.bias
    """)
    train = notebook.run("""
        TIMES = {"deadline": "6h", "expected_duration": "1h"}

        @everspot.job(name="pi", tags={"Team": "vision"}, resources={"memory_gib": 2}, **TIMES)
        def train(lr: float, epochs: int = 3, **others):
            '''Train.'''
            counts = Tally(others)
            return {"loss": Model().forward(lr), "where": os.path.join("a", "b"), "epochs": epochs, "b": counts["b"]}
    """)
    expected = train(2.0, b=7)
    handle = train.submit(2.0, b=7)
    spec = world.store.jobs.get(handle.job_id).value.spec
    assert (spec.name, spec.tags["Team"], spec.resources.memory_gib) == ("pi", "vision", 2)
    assert spec.deadline is not None and json.loads(spec.entrypoint[3]) == {"lr": 2.0, "epochs": 3, "b": 7}
    assert finish(handle.job_id).returncode == 0
    assert handle.result() == expected
    assert everspot.JobHandle(handle.job_id).result() == expected
    assert handle.wait().succeeded and handle.metrics() and list(handle.logs()) == []


def test_constants_with_underscores_go_along_and_names_of_the_module_do_not(notebook: Notebook, finish: Finish) -> None:
    train = notebook.run("""
        __scale__, __offset = 2, 3

        @everspot.job
        def train(lr):
            return [lr * __scale__ + __offset, bool(__name__), bool(__builtins__)]
    """)
    handle = train.submit(4)
    assert finish(handle.job_id).returncode == 0
    assert handle.result() == [11, True, True]


def test_jobs_of_one_function_share_its_code_and_options_change_fields(world: World, notebook: Notebook) -> None:
    train = notebook.run("@everspot.job\ndef train(lr):\n    return lr\n")
    other = train.options(tags={"trial": "2"}, name="second")
    first, second = (world.store.jobs.get(f.submit(lr=n).job_id).value for n, f in enumerate((train, other)))
    assert first.code_digest == second.code_digest
    assert (first.spec.name, second.spec.name, second.spec.tags) == ("train", "second", {"trial": "2"})
    handle = train.submit(lr=3)
    world.launch("i-spot1", 0)
    world.assign(handle.job_id, "i-spot1", 10)
    world.start(handle.job_id, 20)
    handle.cancel()
    assert world.store.cancels.get(handle.job_id) is not None


def test_a_result_that_json_does_not_carry_fails_no_job(notebook: Notebook, finish: Finish) -> None:
    train = notebook.run("""
        import numpy as np

        @everspot.job
        def train(plain):
            return {"loss": np.float32(0.5), "pair": (1, 2)} if plain else {"model": [np.zeros(3)]}
    """)
    sound, unsound = train.submit(True), train.submit(False)
    assert finish(sound.job_id).returncode == 0
    assert sound.result() == {"loss": 0.5, "pair": [1, 2]}
    ended = finish(unsound.job_id)
    assert ended.returncode == 0 and "the result['model'][0] is a numpy.ndarray" in ended.stderr
    with pytest.raises(everspot.CliError, match=r"has no result: the result\['model'\]\[0\] is a numpy.ndarray, and"):
        unsound.result()


def test_a_failed_function_says_why(notebook: Notebook, finish: Finish) -> None:
    handle = notebook.run("@everspot.job\ndef train():\n    raise ValueError('no data')\n").submit()
    assert finish(handle.job_id).returncode == 1
    with pytest.raises(everspot.CliError, match="ended as FAILED: ValueError: no data"):
        handle.result()


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("train = everspot.job(lambda: 1)", "<lambda>: it is a lambda: write it as `def`"),
        (
            "def outer():\n    def inner():\n        return 1\n    return everspot.job(inner)\ntrain = outer()",
            r"outer\.<locals>\.inner: it is defined inside outer",
        ),
        ("class A:\n    @everspot.job\n    def step(self): ...", r"A\.step: it is a method of A"),
        ("@everspot.job\nasync def train(): ...", "train: it is a generator or a coroutine"),
        ("@everspot.job\ndef train(*layers): ...", "its parameter layers takes any number of values"),
        ("train = everspot.job(print)", "print is no function that is written in Python"),
        ("@everspot.job(resource={}, recipe='x')\ndef train(): ...", "recipe is the function's own; resource is no"),
    ],
)  # fmt: skip
def test_a_function_that_no_job_can_run_is_refused_when_it_is_decorated(
    notebook: Notebook, cell: str, problem: str
) -> None:
    with pytest.raises(everspot.CliError, match=problem):
        notebook.run(cell)


@pytest.mark.parametrize(
    ("before", "body", "problem"),
    [
        ("import threading\nlock = threading.Lock()", "return lock", "train: it uses lock, a lock: make it inside, or"),
        ("square = lambda x: x * x", "return square(2)", "train: it uses square: it is a lambda"),
        ("", "return undefined", "train: it uses undefined, which is not defined"),
        ("from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int", "return C(1)", "class C, which has no"),
        ("import numpy as np\nW = np.zeros(2)\ndef f(): return W", "return f()", "f: it uses W, a ndarray"),
    ],
)
def test_everything_that_cannot_go_along_is_refused_by_name(
    world: World, notebook: Notebook, before: str, body: str, problem: str
) -> None:
    notebook.run(before)
    train = notebook.run(f"@everspot.job\ndef train():\n    {body}\n")
    with pytest.raises(everspot.CliError, match=problem):
        train.submit()
    assert list(world.store.jobs.names()) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ((1, 2), "train: the argument lr is a builtins.tuple, and has to be dict, list"),
        ({"a": [{1}]}, r"the argument lr\['a'\]\[0\] is a builtins.set"),
        ({1: 2}, "the argument lr has the key 1"),
    ],
)
def test_an_argument_that_would_arrive_as_another_is_refused(notebook: Notebook, value: Any, problem: str) -> None:
    train = notebook.run("@everspot.job\ndef train(lr):\n    return lr\n")
    with pytest.raises(everspot.CliError, match=problem):
        train.submit(value)
    with pytest.raises(TypeError, match="missing a required argument: 'lr'"):
        train.submit()


def test_a_default_is_that_of_the_moment_of_the_definition(notebook: Notebook, finish: Finish) -> None:
    train = notebook.run("""
        RATE = 0.1

        @everspot.job
        def train(rate=RATE, double=2 * RATE, **others):
            return [rate, double, others]
    """)
    notebook.run("RATE = 0.5")
    handle = train.submit()
    assert finish(handle.job_id).returncode == 0
    assert handle.result() == train() == [0.1, 0.2, {}]


def test_a_constant_has_the_same_source_in_each_process(tmp_path: Path) -> None:
    """Python goes through a set in another order in each process. The code would have another digest each time."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import pathlib, sys
            import everspot
            from everspot_cli.functions.packing import pack_function

            KINDS = {"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"}
            TABLE = {"empty": set(), "fixed": frozenset({"x", "y", "z"}), "one": (1,), "deep": [{"lr": -1e-3}, None]}

            @everspot.job
            def train():
                return sorted(KINDS), TABLE

            folder = pathlib.Path(sys.argv[1])
            pack_function(train.__wrapped__, None, folder)
            names = {}
            exec((folder / "everspot_cells.py").read_text(), names)
            assert names["train"]() == train()
        """)
    )
    sources = set()
    for seed in ("1", "2", "3"):
        folder = tmp_path / seed
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, str(script), str(folder)], env=env, check=True)
        sources.add((folder / "everspot_cells.py").read_text())
    assert len(sources) == 1


def test_a_function_may_be_the_replacement_of_a_missing_module(notebook: Notebook, finish: Finish) -> None:
    train = notebook.run("""
        try:
            from a_module_that_is_missing import helper
        except ImportError:
            def helper(x):
                return x + 1

        if False:
            pass
        else:
            @everspot.job
            def train(x):
                return helper(x)
    """)
    handle = train.submit(1)
    assert finish(handle.job_id).returncode == 0
    assert handle.result() == 2


def test_a_source_that_has_changed_since_is_refused(notebook: Notebook) -> None:
    train = notebook.run("@everspot.job\ndef train():\n    return 1\n")
    name = train._function.__code__.co_filename
    changed = "@everspot.job\ndef train():\n    return 2\n"
    linecache.cache[name] = (len(changed), None, changed.splitlines(keepends=True), name)
    with pytest.raises(everspot.CliError, match="train: its source is not known, or has changed since"):
        train.submit()


SEPARATORS = ("\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""Characters at which `str.splitlines` ends a line, and Python does not."""


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_a_function_goes_along_whole_whatever_stands_above_and_in_it(notebook: Notebook, separator: str) -> None:
    """Given a separator above a function and in its text, when it is packed, then it is the same function."""
    above = f"NOTE = 'a{separator}b'" if separator != "\f" else f"{separator}NOTE = 1"
    train = notebook.run(
        f"{above}\nRATE = 3\n\fdef rate(): return RATE\n\n"
        f"@everspot.job\ndef train():\n    text = 'c{separator}d'\n    return [text, rate()]\n"
    )
    assert run_packed(train) == train() == [f"c{separator}d", 3]


def run_packed(train: JobFunction[[], Any]) -> Any:
    """The result of a function of a notebook from its packed source."""
    with tempfile.TemporaryDirectory() as scratch:
        module, name, folder = pack_function(inspect.unwrap(train), None, Path(scratch, "code"))
        names: dict[str, Any] = {}
        exec((folder / f"{module}.py").read_text(encoding="utf-8"), names)
        return names[name]()


def test_a_function_in_a_block_keeps_its_texts(notebook: Notebook) -> None:
    train = notebook.run("""
        import functools

        if True:
            try:
                @everspot.job
                @functools.lru_cache(
            maxsize=3)
                def train():
                    return \'\'\'one
                    by twenty
            by twelve\'\'\'
            except ImportError:
                pass
    """)
    assert run_packed(train) == train()


@pytest.mark.parametrize(
    ("old", "new", "subject"),
    [
        ("return self.rate", "return 999", "Model"),
        ("rate = 1", "rate = 7", "Model"),
        ("x=1", "x=7", "helper"),
        ("epochs=2", "epochs=9", "train"),
    ],
)
def test_a_file_that_was_edited_while_it_runs_is_refused(
    notebook: Notebook, tmp_path: Path, old: str, new: str, subject: str
) -> None:
    """Given a script that runs, when its author edits what a job uses, then the job is refused. Other edits do not
    matter."""
    source = textwrap.dedent("""
        class Model:
            rate = 1
            def __init__(self): self.n = 1
            def loss(self): return self.rate

        def helper(x=1): return x

        @everspot.job
        def train(epochs=2):
            return Model().loss() + helper() + epochs

        UNUSED = 1
    """)
    script = tmp_path / "script.py"
    script.write_text(source)
    exec(compile(source, str(script), "exec"), notebook.names)
    train = notebook.names["train"]
    script.write_text(source.replace("UNUSED = 1", "UNUSED = [1, 2]"))
    assert run_packed(train) == train() == 4
    script.write_text(source.replace(old, new))
    with pytest.raises(everspot.CliError, match=f"{subject}: its source is not known, or has changed"):
        train.submit()


def test_modules_of_a_folder_need_code(
    notebook: Notebook, finish: Finish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "cont_layers.py").write_text("def layer(x):\n    return x + 1\n")
    (project / "secret.txt").write_text("not packed")
    (project / ".everspotignore").write_text("secret.txt\n")
    monkeypatch.syspath_prepend(str(project))
    train = notebook.run("""
        import cont_layers
        from cont_layers import layer as add

        @everspot.job
        def train(x):
            return add(cont_layers.layer(x))
    """)
    with pytest.raises(everspot.CliError, match=r"it uses cont_layers of .*cont_layers.py: name its folder in `code`"):
        train.submit(1)
    handle = train.options(code=str(project)).submit(1)
    assert finish(handle.job_id).returncode == 0
    assert handle.result() == 3
    assert not (tmp_path / f"work-{handle.job_id}" / "secret.txt").exists()


def test_a_function_of_a_module_is_imported_from_its_module(
    notebook: Notebook, finish: Finish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "project" / "cont_pack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("WEIGHT = object()\ndef double(x):\n    assert WEIGHT\n    return 2 * x\n")
    (package / "fit.py").write_text(
        "import everspot\nfrom cont_pack.model import double\n\n@everspot.job(resources={'vcpus': 2})\n"
        "def fit(x):\n    return double(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    from cont_pack.fit import fit  # type: ignore[import-not-found]

    assert isinstance(fit, JobFunction)
    handle = fit.submit(x=4)
    assert finish(handle.job_id).returncode == 0
    assert handle.result() == fit(4) == 8
    with pytest.raises(everspot.CliError, match=r"code has to be .*project, from which cont_pack\.fit is imported"):
        fit.options(code=str(package)).submit(x=4)


def test_a_function_of_a_module_in_the_home_folder_takes_no_keys_along(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "home_models.py").write_text("def fit(x):\n    return x\n")
    monkeypatch.setenv("EVERSPOT_STORE", world.url)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.syspath_prepend(str(home))
    fit = importlib.import_module("home_models").fit
    with pytest.raises(everspot.CliError, match=r"home_models\.py lies in .*home, and its whole folder would go along"):
        everspot.job(fit).submit(1)
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text("key")
    (home / "id_rsa").write_text("key")
    handle = everspot.job(code=str(home))(fit).submit(1)
    folder = tmp_path / "fetched"
    world.store.fetch_code(world.store.jobs.get(handle.job_id).value, folder)
    assert sorted(path.name for path in folder.rglob("*")) == ["everspot_function.py", "home_models.py"]


def test_an_instance_imports_a_decorated_function_without_the_command() -> None:
    program = (
        "import everspot, sys; everspot.job(resources={'gpus': 1})(lambda: 0) if 0 else everspot.job(tags={});"
        "print([n for n in ('typer', 'rich', 'yaml', 'pathspec', 'pulumi', 'boto3', 'torch') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_older_python_says_that_it_cannot_read_the_function(tmp_path: Path) -> None:
    (tmp_path / "everspot_cells.py").write_text("def train[:\n")
    shutil.copy(run_function.__file__, tmp_path / run_function.SCRIPT)
    command = [sys.executable, run_function.SCRIPT, "everspot_cells", "train", "{}", "3.99"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("train was submitted by Python 3.99 and cannot be read by Python 3.")


def test_cells_of_a_real_kernel_are_submitted(world: World, finish: Finish) -> None:
    """Given an ipykernel, when its cells define and submit a function, then the job runs what the cells say."""
    reason = "ipykernel is not installed: `make setup` installs it"
    manager = pytest.importorskip("jupyter_client.manager", reason=reason)
    pytest.importorskip("ipykernel", reason=reason)
    kernel, client = manager.start_new_kernel(kernel_name="python3", env={**os.environ, "EVERSPOT_STORE": world.url})
    printed: list[str] = []

    def note_output(message: dict[str, Any]) -> None:
        if message["content"].get("name") == "stdout":  # warnings go to the other
            printed.append(message["content"]["text"])

    def run(cell: str) -> None:
        reply = client.execute_interactive(textwrap.dedent(cell), timeout=120, output_hook=note_output)
        assert reply["content"]["status"] == "ok", reply["content"]

    try:
        run("import everspot\nBASE = 10\ndef helper(x):\n    return x + BASE\n")
        run("""
            from dataclasses import dataclass

            @dataclass
            class Config:
                lr: float

                def rate(self):
                    return helper(self.lr)
        """)
        run("@everspot.job\ndef train(lr):\n    return Config(lr).rate()\n")
        run("print(train(2), train.submit(lr=2).job_id)")
        run("@everspot.job\ndef train(lr):\n    return -Config(lr).rate()\n")  # the cell again, with another body
        run("print(train(2), train.submit(lr=2).job_id)")
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    pairs = [line.split() for line in "".join(printed).splitlines()]
    for result, job in pairs:
        assert finish(job).returncode == 0
        assert everspot.JobHandle(job, everspot.Client(world.url)).result() == int(result)
    assert [result for result, _ in pairs] == ["12", "-12"]


def test_arguments_that_do_not_go_along_are_refused_in_the_words_of_the_function(notebook: Notebook) -> None:
    train = notebook.run("@everspot.job\ndef train(rows):\n    return rows\n")
    endless: list[Any] = []
    endless.append(endless)
    for rows, words in (
        (endless, "train: the argument rows has more than 100 levels, or contains itself"),
        (10**4300, "train: the argument rows is a whole number of more than 4300 digits"),
        (["x"] * 50_000, "train: the arguments are 250 KB as JSON, and 131 KB go along"),
    ):
        with pytest.raises(everspot.CliError, match=words) as refusal:
            train.submit(rows)
    assert "everspot data put" in str(refusal.value.hint)


def test_no_result_fails_a_job_whose_work_is_done(notebook: Notebook, finish: Finish) -> None:
    train = notebook.run("""
        @everspot.job
        def train(kind):
            endless = []
            endless.append(endless)
            return {"endless": endless, "large": 10**4300}[kind]
    """)
    for kind, words in (("endless", "the result has more than 100 levels"), ("large", "the result is a whole number")):
        handle = train.submit(kind)
        assert finish(handle.job_id).returncode == 0
        with pytest.raises(everspot.CliError, match=f"has no result: {words}"):
            handle.result()


def test_the_decorator_may_be_a_partial_with_the_fields_of_a_project(world: World, notebook: Notebook) -> None:
    train = notebook.run("""
        import functools
        gpu_job = functools.partial(everspot.job, tags={"Team": "vision"})

        @gpu_job(name="first")
        def train(lr):
            return lr
    """)
    spec = world.store.jobs.get(train.submit(1).job_id).value.spec
    assert (spec.name, spec.tags) == ("first", {"Team": "vision"})
