"""Fetching public data, against servers on 127.0.0.1 that are honest, damaged, cut short, empty or not there."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paceline.base.errors import BadInput, RunFailed
from paceline.commands import data as command
from paceline.data import fetch as fetching
from paceline.data.fetch import DATASETS, Dataset, fetch

FILES = {"a.gz": b"first file" * 50_000, "b.gz": b"second"}
CHECKSUMS = {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()}


class Mirror:
    """A server on 127.0.0.1 whose first path element says how it behaves."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.agents: set[str | None] = set()
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path)
                mirror.agents.add(self.headers["User-Agent"])
                _, manner, name = self.path.split("/")
                content = FILES.get(name)
                if content is None or manner == "missing":
                    return self.send_error(404)
                if manner == "busy":
                    return self.send_error(503)
                self.send_response(200)
                if manner != "unsized":
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                body = {"damaged": b"X" + content[1:], "short": content[: len(content) // 2]}.get(manner, content)
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def url(self, manner: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{manner}/"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Mirror()
    yield server
    server.close()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address that refuses connections: bound, so that nobody else takes the port, and not listening."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"


def raw(to: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (to / "MNIST" / "raw").iterdir()}


@pytest.mark.parametrize("manner", ["good", "unsized"])
def test_fetches_into_place(tmp_path: Path, mirror: Mirror, manner: str) -> None:
    seen: list[tuple[str, int, int]] = []
    got = fetch(
        "mnist", tmp_path / "new", mirrors=[mirror.url(manner)], checksums=CHECKSUMS,
        progress=lambda *step: seen.append(step),
    )  # fmt: skip
    assert got == tmp_path / "new"
    assert raw(got) == FILES
    assert mirror.agents == {"paceline"}
    sizes = {name: len(content) for name, content in FILES.items()}
    assert [(name, done) for name, done, total in seen if done == total] == list(sizes.items())
    assert any(done < sizes["a.gz"] for name, done, _ in seen if name == "a.gz")


def test_what_is_there_and_right_is_left_alone(tmp_path: Path, mirror: Mirror) -> None:
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "a.gz").write_bytes(FILES["a.gz"])
    (folder / "b.gz").write_bytes(b"wrong")
    fetch("mnist", tmp_path, mirrors=[mirror.url("good")], checksums=CHECKSUMS)
    assert mirror.asked == ["/good/b.gz"]
    assert raw(tmp_path) == FILES
    fetch("mnist", tmp_path, mirrors=["http://127.0.0.1:1/"], checksums=CHECKSUMS)


@pytest.mark.parametrize("first", ["missing", "busy", "damaged", "short"])
def test_next_mirror_is_asked_and_then_kept(tmp_path: Path, mirror: Mirror, first: str) -> None:
    fetch("mnist", tmp_path, mirrors=[mirror.url(first), mirror.url("good")], checksums=CHECKSUMS)
    assert mirror.asked == [f"/{first}/a.gz", "/good/a.gz", "/good/b.gz"]
    assert raw(tmp_path) == FILES


def test_refused_connection_then_next_mirror(tmp_path: Path, mirror: Mirror, refused: str) -> None:
    fetch("mnist", tmp_path, mirrors=[refused, mirror.url("good").rstrip("/")], checksums=CHECKSUMS)
    assert raw(tmp_path) == FILES


@pytest.mark.parametrize(
    ("manners", "kind", "words"),
    [
        (["damaged"], "checksum", ["checksum is wrong", "nothing was kept", "expected " + CHECKSUMS["a.gz"]]),
        (["damaged", "missing"], "checksum", ["checksum is wrong", "404"]),
        (["short"], "network", ["broke off after 250000 of 500000 bytes"]),
        (["missing", "busy"], "network", ["no mirror has it", "404", "503"]),
    ],
)
def test_no_mirror_helps(tmp_path: Path, mirror: Mirror, manners: list[str], kind: str, words: list[str]) -> None:
    with pytest.raises(RunFailed) as caught:
        fetch("mnist", tmp_path, mirrors=[mirror.url(manner) for manner in manners], checksums=CHECKSUMS)
    error = caught.value
    assert (error.kind, error.exit_code) == (kind, 1)
    assert "\n" not in error.why
    for word in ["a.gz", *words]:
        assert word in error.why
    assert raw(tmp_path) == {}  # neither a wrong file nor a temporary one


def test_no_network(tmp_path: Path, refused: str) -> None:
    with pytest.raises(RunFailed, match=r"^a.gz: no mirror could be reached; is there a network\?") as caught:
        fetch("mnist", tmp_path, mirrors=[refused], checksums=CHECKSUMS)
    assert caught.value.kind == "network"


def test_silent_server_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(RunFailed, match="timed out") as caught:
            fetch("mnist", tmp_path, mirrors=[url], checksums=CHECKSUMS, timeout_s=0.1)
    assert caught.value.kind == "network"


def test_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'mnist'"):
        fetch("minst", Path("/nowhere"))


def test_place_that_cannot_be_made(tmp_path: Path, mirror: Mirror) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"Not a directory.*name another folder"):
        fetch("mnist", tmp_path / "file", mirrors=[mirror.url("good")], checksums=CHECKSUMS)
    assert mirror.asked == []


def test_catalogue_is_the_four_files_from_two_mirrors() -> None:
    mnist = DATASETS["mnist"]
    assert len(mnist.mirrors) == 2
    assert all(url.startswith("https://") for url in mnist.mirrors)
    assert sorted(mnist.checksums) == [
        "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz",
        "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
    ]  # fmt: skip
    assert all(len(md5) == 32 for md5 in mnist.checksums.values())


def test_command_says_where_it_is(tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    def local(name: str, to: Path, **options: object) -> Path:
        return fetch(name, to, mirrors=[mirror.url("good")], checksums=CHECKSUMS, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(command.sets, "fetch", local)
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    assert command.fetch("mnist", None, said.append) == Path("data")
    assert said == ["a.gz: 500,000 bytes", "b.gz: 6 bytes", "mnist is complete; train on it with data=data"]
    assert raw(tmp_path / "data") == FILES
    command.fetch("mnist", str(tmp_path / "two words"), said.append)
    assert said[-1].endswith(f"data='{tmp_path}/two words'")


def archive(**members: bytes | str) -> bytes:
    """A tar.gz; `_` in a name stands for `/`, and a text is the target of a link."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_bin", ".bin"))
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def packed_set(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A set of two files in an archive, as cifar10 has six."""
    monkeypatch.setattr(fetching, "DATASETS", {"packed": Dataset("out", (), {}, unpacked={"one.bin": 3, "two.bin": 5})})
    monkeypatch.setitem(FILES, "p.tar.gz", archive(set__one_bin=b"abc", set__readme=b"no", set__two_bin=b"defgh"))
    return {"p.tar.gz": hashlib.md5(FILES["p.tar.gz"]).hexdigest()}


def test_an_archive_gives_its_files_and_is_not_kept(tmp_path: Path, mirror: Mirror, packed_set: dict[str, str]) -> None:
    seen: list[tuple[str, int, int]] = []
    fetch(
        "packed", tmp_path, mirrors=[mirror.url("good")], checksums=packed_set, progress=lambda *step: seen.append(step)
    )
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert found == {"one.bin": b"abc", "two.bin": b"defgh"}
    assert [(name, done) for name, done, total in seen if done == total] == [("one.bin", 3), ("two.bin", 5)]
    fetch("packed", tmp_path, mirrors=["http://127.0.0.1:1/"], checksums=packed_set)  # there already: nobody is asked
    (tmp_path / "out" / "two.bin").write_bytes(b"cut")
    fetch("packed", tmp_path, mirrors=[mirror.url("good")], checksums=packed_set)
    assert (tmp_path / "out" / "two.bin").read_bytes() == b"defgh"
    assert mirror.asked == ["/good/p.tar.gz"] * 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (archive(one_bin=b"abc"), "no file two.bin of 5 bytes in it"),
        (archive(one_bin=b"abc", two_bin=b"longer"), "no file two.bin of 5 bytes in it"),
        (archive(one_bin=b"abc", two_bin="/etc/passwd"), "no file two.bin of 5 bytes in it"),
        (b"no archive", "cannot be unpacked"),
        (archive(one_bin=b"abc", two_bin=b"defgh")[:-20], "cannot be unpacked"),
    ],
)
def test_an_archive_that_is_not_the_set(
    tmp_path: Path,
    mirror: Mirror,
    packed_set: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    words: str,
) -> None:
    monkeypatch.setitem(FILES, "p.tar.gz", content)
    sums = {"p.tar.gz": hashlib.md5(content).hexdigest()}
    with pytest.raises(RunFailed) as caught:
        fetch("packed", tmp_path, mirrors=[mirror.url("good")], checksums=sums)
    assert words in caught.value.why and caught.value.why.startswith("p.tar.gz: ") and "\n" not in caught.value.why
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert found.items() <= {"one.bin": b"abc", "two.bin": b"defgh"}.items()  # whole files, or none


def test_nothing_is_written_where_an_archive_points(
    tmp_path: Path, mirror: Mirror, packed_set: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = archive(**{"..__..__one_bin": b"abc", "__two_bin": b"defgh", "..__evil": b"x"})
    monkeypatch.setitem(FILES, "p.tar.gz", content)
    sums = {"p.tar.gz": hashlib.md5(content).hexdigest()}
    fetch("packed", tmp_path / "a" / "b", mirrors=[mirror.url("good")], checksums=sums)
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == ["a/b/out/one.bin", "a/b/out/two.bin"]


def test_cifar10_is_the_published_archive() -> None:
    cifar = DATASETS["cifar10"]
    assert cifar.checksums == {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"}
    assert all(url.startswith("https://") for url in cifar.mirrors)
    assert sorted(cifar.unpacked) == [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    assert set(cifar.unpacked.values()) == {30_730_000}
