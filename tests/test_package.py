"""What the two archives hold that a stranger installs, held against what git knows."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from paths import ROOT

# the help and pages link to these
BESIDE = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}


def known_files() -> set[str]:
    """Every file of this tree but those that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


def test_a_wheel_has_the_package_its_pages_and_the_licence(tmp_path: Path) -> None:
    builders = pytest.importorskip("hatchling.builders.wheel")
    (path,) = builders.WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path), versions=["standard"]
    )
    with zipfile.ZipFile(path) as wheel:
        names = [PurePosixPath(name) for name in wheel.namelist()]
        [entry_points] = [name for name in names if name.name == "entry_points.txt"]
        assert b"ffnbench = ffnbench.__main__:main" in wheel.read(str(entry_points))
    about = {str(name.relative_to(name.parts[0])) for name in names if "dist-info" in name.parts[0]}  # fmt: skip
    assert {"licenses/LICENSE", "METADATA", "RECORD", "WHEEL"} <= about

    files = {str(name) for name in names if "dist-info" not in name.parts[0]}
    known = known_files()
    package = {name for name in known if name.startswith("ffnbench/")}
    pages = {name for name in known if name in BESIDE or name.startswith("docs/")}
    assert "ffnbench/py.typed" in files
    assert package <= files
    assert {f"ffnbench/{name}" for name in pages} <= files
    rest = files - package - {f"ffnbench/{name}" for name in pages}
    assert all(name.startswith("ffnbench/results/") for name in rest), rest


def test_a_source_archive_has_every_file_and_no_other(tmp_path: Path) -> None:
    builders = pytest.importorskip("hatchling.builders.sdist")
    (path,) = builders.SdistBuilder(str(ROOT)).build(
        directory=str(tmp_path), versions=["standard"]
    )
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names - known_files() == {"PKG-INFO"}
    assert known_files() - names == set()


def test_extras_that_a_text_names_exist() -> None:
    """In docs, hints and messages: `ffnbench[ort]`, `.[test,cuda]`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(project["project"]["optional-dependencies"])
    texts = [ROOT / name for name in known_files() if name.endswith((".md", ".py"))]
    named = {
        name
        for path in texts
        for names in re.findall(
            r"(?:ffnbench|\.)\[([a-z,]+)\]['\"`]", path.read_text(encoding="utf-8")
        )
        for name in names.split(",")
    }
    assert {"ort", "cuda", "hf", "test"} <= named
    assert named <= extras
