"""The settings of a job serve only its driver: mounted, or sealed in a shared folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.application import main
from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, EXIT_SUCCESS, coordinator_of
from airflow_provider_coordination.spark.settings import IngestSettings, SettingsReference
from airflow_provider_coordination.stores import StoreSettings
from tests.conftest import REPOSITORY
from tests.support.job_settings import changed, ingest

PASSWORD = "store-passw0rd-of-ours"


@pytest.fixture
def settings(tmp_path: Path) -> IngestSettings:
    return ingest(
        source="clicks",
        owner="a job",
        reads=ReadsSettings(
            kind="kinesis",
            settings={
                "streams": ["clicks"],
                "aws": {"access_key_id": "AKIAEXAMPLE", "secret_access_key": PASSWORD, "region": "eu-west-1"},
            },
        ),
        output=tmp_path / "out",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
        store=StoreSettings.from_url(f"sqlite:///{tmp_path}/coordination.db"),
        is_followed=True,
    )


@pytest.fixture
def jobs(settings: IngestSettings) -> Jobs:
    """The record of the job; its source is suspended, so that a driver ends before it needs Spark."""
    coordinator = coordinator_of(settings, "test")
    coordinator.view.suspensions.suspend()
    jobs = Jobs(coordinator.view)
    jobs.submit(settings.owner, task="t", digest="", start_by=settings.expires_at)
    return jobs


def sealed(settings: IngestSettings, folder: Path) -> SettingsReference:
    reference = SettingsReference.sealed(f"{folder}/settings/of-a-job")
    reference.write(json.dumps(write_settings(settings)))
    return reference


# Sealed


def test_sealed_settings_are_read_with_their_key_only(tmp_path: Path) -> None:
    reference = SettingsReference.sealed(f"{tmp_path}/of-a-job")
    reference.write(PASSWORD)
    assert reference.read() == PASSWORD
    assert PASSWORD.encode()[:6] not in Path(reference.uri).read_bytes()
    other = SettingsReference.sealed(reference.uri)
    assert other.key != reference.key, "each is sealed with a key of its own"
    with pytest.raises(ConfigurationError, match="of-a-job: they were not sealed with the key"):
        other.read()


@pytest.mark.parametrize("at", [0, 1, 20, 60, -1])
def test_changed_settings_are_refused(tmp_path: Path, at: int) -> None:
    reference = SettingsReference.sealed(f"{tmp_path}/of-a-job")
    reference.write(PASSWORD * 9)
    changed = bytearray(Path(reference.uri).read_bytes())
    changed[at] ^= 1
    Path(reference.uri).write_bytes(changed)
    with pytest.raises(ConfigurationError, match="or are damaged"):
        reference.read()


def test_another_driver_cannot_use_sealed_settings(settings: IngestSettings, tmp_path: Path) -> None:
    reference = sealed(settings, tmp_path)
    with pytest.raises(ConfigurationError, match="belong to job 'a job', and this is a driver of job 'another'"):
        IngestSettings.read(reference, "another", datetime.now(UTC))


ROW = (REPOSITORY / "docs" / "clusters.md").read_text().partition("| Python modules | drivers |")[2].partition("|")[0]
DOCUMENTED = re.findall(r"`(\w+)`", ROW)
"""The modules that the manual lists for drivers."""
BESIDE_THOSE = (
    "botocore", "cffi", "dateutil", "greenlet", "jmespath", "numpy", "py4j", "pyspark", "s3transfer", "six",
    "typing_extensions", "urllib3",
)  # fmt: skip
"""What the modules need themselves, and what Spark brings."""
ONLY = """
import runpy, sys

allowed, sys.argv = set(sys.argv[1].split(",")), sys.argv[2:]

class OtherModules:
    def find_spec(self, name, path=None, target=None):
        if path is None and name not in allowed | sys.stdlib_module_names and not name.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, OtherModules())
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def drive(reference: SettingsReference, modules: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run the program of a job in a Python that has no other modules."""
    allowed = ",".join(("airflow_provider_coordination", *modules, *BESIDE_THOSE))
    program = str(REPOSITORY / "spark_apps" / "ingest.py")
    command = [sys.executable, "-c", ONLY, allowed, program, reference.to_text(), "a job"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_documented_modules_are_enough_for_a_driver(settings: IngestSettings, jobs: Jobs, tmp_path: Path) -> None:
    ran = drive(sealed(settings, tmp_path), DOCUMENTED)
    assert ran.returncode == EXIT_SUCCESS, ran.stdout + ran.stderr


@pytest.mark.parametrize("missing", ["cryptography", "msgspec", "sqlalchemy"])
def test_driver_names_the_module_that_it_lacks(
    settings: IngestSettings, jobs: Jobs, tmp_path: Path, missing: str
) -> None:
    ran = drive(sealed(settings, tmp_path), [name for name in DOCUMENTED if name != missing])
    assert ran.returncode == EXIT_CONFIGURATION, ran.stdout + ran.stderr
    assert f"the driver's Python has no module '{missing}': install it there" in ran.stdout


@pytest.mark.parametrize("uri", ["s3://bucket/of#ours/x", "/Volumes/a b/c", "relative"])
def test_reference_survives_the_command_line(uri: str) -> None:
    for reference in (SettingsReference(uri=uri), SettingsReference.sealed(uri)):
        assert SettingsReference.parse(reference.to_text()) == reference
    assert "key" not in repr(reference)


@pytest.mark.usefixtures("as_in_a_process_of_its_own")
def test_sealed_settings_serve_one_driver_and_leave_nothing(
    settings: IngestSettings, jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = sealed(settings, tmp_path)
    kept = Path(reference.uri).read_bytes()
    assert PASSWORD.encode() not in kept
    assert main([reference.to_text(), "a job"]) == EXIT_SUCCESS
    assert not Path(reference.uri).exists()
    assert main([reference.to_text(), "a job"]) == EXIT_CONFIGURATION
    assert "do not exist: a driver has already read them" in capsys.readouterr().out
    Path(reference.uri).write_bytes(kept)  # as an earlier version in a bucket, or another driver's copy
    assert main([reference.to_text(), "a job"]) == EXIT_CONFIGURATION
    assert "another driver has already used the settings of job" in capsys.readouterr().out
    job = jobs.get("a job")
    assert job is not None and job.outcome is not None and job.outcome["exit_code"] == EXIT_SUCCESS


@pytest.mark.usefixtures("as_in_a_process_of_its_own")
def test_expired_sealed_settings_are_refused(
    settings: IngestSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = sealed(changed(settings, expires_at=datetime(2026, 1, 1, tzinfo=UTC)), tmp_path)
    assert main([reference.to_text(), "a job"]) == EXIT_CONFIGURATION
    assert (
        "expired at 2026-01-01T00:00:00Z; they are valid for one job only: run the task again"
        in capsys.readouterr().out
    )


def test_unknown_region_of_a_bucket_is_no_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(bucket: str) -> str:
        raise OSError(f"When resolving region for bucket '{bucket}': could not resolve host")

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    monkeypatch.setattr("pyarrow.fs.resolve_s3_region", unreachable)
    with pytest.raises(CoordinationError, match="cannot be read: When resolving region for bucket 'lake'") as raised:
        SettingsReference.sealed("s3://lake/settings/of-a-job").read()
    assert not isinstance(raised.value, ConfigurationError)


def test_unavailable_location_is_no_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CoordinationError, match="cannot be read") as error:
        SettingsReference.sealed(f"{tmp_path}/folder").read()
    assert not isinstance(error.value, ConfigurationError)


# Mounted


def mounted(settings: IngestSettings, folder: Path) -> Path:
    """Lay a Secret out as kubelet does."""
    data = folder / "..2026_01_31_12_00_00.123"
    data.mkdir(parents=True)
    settings.write(data / "settings.json")
    (folder / "..data").symlink_to(data.name)
    (folder / "settings.json").symlink_to("..data/settings.json")
    return folder / "settings.json"


def read_only(folder: Path) -> list[str]:
    """Return the beginning of a command that runs where nothing of a folder can be changed."""
    if os.geteuid() != 0:
        for each in (folder, *(path for path in folder.iterdir() if path.is_dir())):
            each.chmod(0o555)
        return []
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("the superuser may change anything here, and cannot mount")
    return command


def test_driver_reads_mounted_settings_and_leaves_them(settings: IngestSettings, jobs: Jobs, tmp_path: Path) -> None:
    path = mounted(settings, tmp_path / "secret")
    application = [sys.executable, str(REPOSITORY / "spark_apps" / "ingest.py"), str(path), "a job"]
    command = [*read_only(path.parent), *application]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ran = [subprocess.run(command, env=environment, capture_output=True, text=True) for _ in range(2)]
    assert (ran[0].returncode, ran[1].returncode) == (EXIT_SUCCESS, EXIT_CONFIGURATION), ran
    assert "the settings in" in ran[0].stdout and "could not be deleted; their writer removes them" in ran[0].stdout
    assert "another driver has already used the settings" in ran[1].stdout, "a container that was begun again"
    assert path.exists() and PASSWORD not in ran[0].stdout + ran[1].stdout
    job = jobs.get("a job")
    assert job is not None and job.outcome is not None and job.outcome["exit_code"] == EXIT_SUCCESS
