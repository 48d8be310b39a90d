"""Brings public data sets to the user's disk: from the first mirror that answers, checked before a file gets its name.
It must not convert or train on anything, and it never leaves a wrong file under a right name. Of an archive only files
whose names are known here are taken out, and no name or path of the archive's own is used."""

from __future__ import annotations

import hashlib
import http.client
import io
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import write_bytes
from paceline.base.names import unknown

# File name, bytes so far, bytes in all (0: the mirror does not say). The two are equal once, when the file is in place.
Progress = Callable[[str, int, int], None]

_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 18
# Files are checked in memory; a mirror that sends without end must not fill it. The largest set here has 170 MB.
_LIMIT_BYTES = 256 << 20

_CIFAR_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where a set comes from, where it lies below the user's folder, and the md5 of each file that is downloaded.

    `unpacked`: the files taken out of a tar archive, which itself is not kept, and their bytes. Nobody publishes sums of
    those; the archive's was right, and a file appears whole or not at all, so its size tells whether it is there."""

    folder: str
    mirrors: tuple[str, ...]
    checksums: Mapping[str, str]
    unpacked: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {
        "mnist": Dataset(
            folder="MNIST/raw",
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            checksums=MappingProxyType(
                {
                    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
                }
            ),
        ),
        "cifar10": Dataset(
            folder="cifar-10-batches-bin",
            mirrors=("https://www.cs.toronto.edu/~kriz/",),
            checksums=MappingProxyType({"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"}),
            unpacked=MappingProxyType(dict.fromkeys((*_CIFAR_TRAIN, "test_batch.bin"), 10_000 * 3_073)),
        ),
    }
)


class _Refused(Exception):
    """One mirror could not give one file; the next is asked. `kind` is "network", "server" or "checksum"."""

    def __init__(self, why: str, kind: str) -> None:
        super().__init__(why)
        self.kind = kind


def fetch(
    name: str,
    to: Path,
    *,
    progress: Progress | None = None,
    mirrors: Sequence[str] | None = None,
    checksums: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> Path:
    """Fetch the set `name` below `to` and return `to`; files that are there and right are left alone."""
    if name not in DATASETS:
        raise BadInput(unknown("data set", name, DATASETS))
    dataset = DATASETS[name]
    folder = _make(to / dataset.folder)
    report = progress or _silent
    sources = list(dataset.mirrors if mirrors is None else mirrors)
    for file, md5 in (dataset.checksums if checksums is None else checksums).items():
        # What must lie in the folder once this file is dealt with: itself, or what comes out of it.
        targets = [folder / name for name in dataset.unpacked or (file,)]
        if not (_are_out(folder, dataset.unpacked) if dataset.unpacked else _is_right(folder / file, md5)):
            # A mirror that answered serves the next file too: waiting for a dead one to time out once is enough.
            blob, sources = _from_any(sources, file, md5, report, timeout_s)
            if dataset.unpacked:
                _unpack(blob, file, dataset.unpacked, folder)
            else:
                write_bytes(folder / file, blob)
        for target in targets:
            size = target.stat().st_size
            report(target.name, size, size)
    return to


def _make(folder: Path) -> Path:
    """The folder, before anything is downloaded: a wrong place should not cost ten megabytes first."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be made ({error.strerror}); name another folder") from None
    return folder


def _is_right(path: Path, md5: str) -> bool:
    if not path.is_file():
        return False
    return _md5(path.read_bytes()) == md5


def _are_out(folder: Path, sizes: Mapping[str, int]) -> bool:
    return all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())


def _unpack(blob: bytes, archive: str, sizes: Mapping[str, int], folder: Path) -> None:
    """The files of `sizes`, wherever in the archive they lie; links and everything else in it are passed over."""
    missing = dict(sizes)
    try:
        with tarfile.open(fileobj=io.BytesIO(blob), mode="r:gz") as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if not member.isreg() or name not in missing or member.size != missing[name]:
                    continue
                content = tar.extractfile(member)
                assert content is not None  # of a regular file
                write_bytes(folder / name, content.read())
                del missing[name]
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        why = " ".join(str(error).split())
        raise RunFailed(f"{archive}: cannot be unpacked ({why})", kind="checksum") from None
    if missing:
        name, size = next(iter(missing.items()))
        raise RunFailed(f"{archive}: no file {name} of {size} bytes in it", kind="checksum")


def _from_any(sources: list[str], file: str, md5: str, report: Progress, timeout_s: float) -> tuple[bytes, list[str]]:
    """The file from the first mirror that has it right, and the mirrors with that one in front."""
    refusals: list[_Refused] = []
    for source in sources:
        try:
            blob = _download(source.rstrip("/") + "/" + file, file, report, timeout_s)
            sent_md5 = _md5(blob)
            if sent_md5 != md5:
                raise _Refused(f"{source} sent {len(blob)} bytes with md5 {sent_md5}, expected {md5}", "checksum")
        except _Refused as refused:
            refusals.append(refused)
            continue
        return blob, [source, *(other for other in sources if other != source)]
    raise _failure(file, refusals)


def _download(url: str, file: str, report: Progress, timeout_s: float) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "paceline"})
    blob = bytearray()
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            total = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(_CHUNK_BYTES):
                blob += chunk
                if len(blob) > _LIMIT_BYTES:
                    raise _Refused(f"{url} sends more than {_LIMIT_BYTES} bytes", "server")
                if len(blob) != total:
                    report(file, len(blob), total)
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            raise _Refused(f"{url} answered {error.code} {error.reason}", "server") from None
    except urllib.error.URLError as error:
        raise _Refused(f"{url}: {error.reason}", "network") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Refused(f"{url}: {error or type(error).__name__}", "network") from None
    # http.client returns what came when the connection closes early on a read of a given size; it does not raise.
    if total and len(blob) != total:
        raise _Refused(f"{url} broke off after {len(blob)} of {total} bytes", "network")
    return bytes(blob)


def _failure(file: str, refusals: list[_Refused]) -> RunFailed:
    """One sentence, led by the worst that was seen: a wrong file outranks a server's refusal, that outranks silence."""
    details = "; ".join(str(refused) for refused in refusals)
    kinds = {refused.kind for refused in refusals}
    if "checksum" in kinds:
        return RunFailed(f"{file}: the checksum is wrong, nothing was kept ({details})", kind="checksum")
    if "server" in kinds:
        return RunFailed(f"{file}: no mirror has it ({details})", kind="network")
    return RunFailed(f"{file}: no mirror could be reached; is there a network? ({details})", kind="network")


def _md5(blob: bytes) -> str:
    """Guards against damage, not malice: md5 is what the mirrors publish. FIPS systems allow it only when told so."""
    return hashlib.md5(blob, usedforsecurity=False).hexdigest()


def _silent(_file: str, _done: int, _total: int) -> None:
    """Nobody asked to watch."""
