"""Files of traces: their names, bytes and compression, and whether they hold text."""

from __future__ import annotations

import codecs
import gzip
import importlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from instances.errors import InputError
from instances.input_files import refuse_device

__all__ = [
    "SAVE_AS",
    "SUFFIXES",
    "decompress",
    "optional_module",
    "read_bytes",
    "split_suffix",
    "utf8_text",
    "zstd_module",
]

SUFFIXES: Final = (
    *(base + packed for base in (".csv", ".jsonl", ".ndjson") for packed in ("", ".gz", ".zst")),
    ".parquet",
)
#: What to do in a spreadsheet to get a file that is read here.
SAVE_AS: Final = "Save As, CSV UTF-8 (comma delimited)"
_SHEETS: Final = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
_BOM: Final = b"\xef\xbb\xbf"
_CHUNK: Final = 1 << 23


def split_suffix(path: str | Path) -> tuple[str, str]:
    """Return the format (``csv``, ``jsonl`` or ``parquet``) and compression of a path."""
    name = Path(path).name
    found = next((s for s in SUFFIXES if name.lower().endswith(s)), None)
    if found is None:
        excel = name.lower().endswith(_SHEETS)
        hint = f" In Excel: {SAVE_AS}." if excel else ""
        raise InputError(f"{name}: Expected a file name ending in {', '.join(SUFFIXES)}.{hint}")
    base, _, packed = found[1:].partition(".")
    return ("jsonl" if base == "ndjson" else base), packed


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file, or raise an InputError that names it."""
    refuse_device(path)
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}.") from error


def optional_module(names: Sequence[str], what: str, extra: str) -> Any:
    """Import the first of ``names`` that is installed, or say which extra brings it."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise InputError(
        f"{what} needs the package {names[-1]}, which is not installed: "
        f"install the extra '{extra}' (pip install '.[{extra}]' in this project's folder)."
    )


def zstd_module() -> Any:
    """Return the zstd module of the standard library (Python 3.14) or zstandard."""
    return optional_module(("compression.zstd", "zstandard"), "A .zst file", "zstd")


def decompress(data: bytes, packed: str, source: str) -> bytes:
    """Undo ``gz``, ``zst`` or no compression; a broken stream is an InputError."""
    if not packed:
        return data
    module = zstd_module() if packed == "zst" else gzip
    broken: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
    if packed == "zst":
        broken = (EOFError, module.ZstdError)
    try:
        if module.__name__ == "zstandard":
            return _unpack_frames(data, module)
        return bytes(module.decompress(data))
    except broken as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"{source}: Not a whole .{packed} file: {reason}.") from error


def _unpack_frames(data: bytes, zstandard: Any) -> bytes:
    parts = []
    rest = data
    while True:
        frame = zstandard.ZstdDecompressor().decompressobj()
        parts.append(frame.decompress(rest))
        if not frame.eof:
            raise EOFError("the file ends inside a frame")
        rest = frame.unused_data
        if not rest:
            return b"".join(parts)


def utf8_text(data: bytes, source: str) -> bytes:
    """Return UTF-8 text without its byte order mark; refuse bytes that are not UTF-8 text."""
    _check_text(data, source)
    return data[len(_BOM) :] if data.startswith(_BOM) else data


def _check_text(data: bytes, source: str) -> None:
    """Refuse bytes that are not UTF-8 text."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(
            f"{source}: Expected UTF-8 text, got UTF-16. Save the file as UTF-8; in Excel: "
            f"{SAVE_AS}."
        )
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise InputError(f"{source}: Not a text file: NUL byte in line {line}.")
    if data.isascii():
        return
    start = 0
    while start < len(data):
        stop = min(start + _CHUNK, len(data))
        while stop < len(data) and data[stop] & 0xC0 == 0x80 and stop > start + _CHUNK - 4:
            stop -= 1
        try:
            data[start:stop].decode("utf-8")
        except UnicodeDecodeError as error:
            at = start + error.start
            line = data.count(b"\n", 0, at) + 1
            raise InputError(
                f"{source}: Not UTF-8 text: byte 0x{data[at]:02x} in line {line}. "
                "Save the file as UTF-8."
            ) from error
        start = stop
