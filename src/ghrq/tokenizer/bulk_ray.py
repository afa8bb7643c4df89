"""Encode a table on Ray Data: its parts are spread over actors, on a cluster or on this machine."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ghrq.data.tables import VectorTable
from ghrq.system.errors import UserError, require
from ghrq.tokenizer.bulk import EncodedRows, encode_range

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer

# Seconds to wait for a cluster to accept a connection.
_TIMEOUT = 10.0


def encode_on_ray(tokenizer: "Tokenizer", table: VectorTable, size: int) -> Iterator[EncodedRows]:
    """:func:`ghrq.tokenizer.bulk.encode_range` of the whole table, in the order in which batches are finished.

    Parts of the file are spread over a pool of actors. An actor reads its part itself, so only codes are sent, in the
    same batches as on one machine. CSV and JSON lines are one part.
    """
    ray, data = require("ray", "scale"), require("ray.data", "scale")
    with _cluster(ray):
        spans = [{"start": start, "stop": stop} for start, stop in table.spans(size)]
        actors = max(1, min(len(spans), int(ray.cluster_resources().get("CPU", 1))))
        encoded = data.from_items(spans, override_num_blocks=len(spans)).map_batches(
            _Encoder,
            fn_constructor_args=(tokenizer, table, size, os.getcwd()),
            batch_size=1,
            batch_format="numpy",
            compute=data.ActorPoolStrategy(min_size=1, max_size=actors),
        )
        try:
            for part in encoded.iter_batches(batch_size=None, batch_format="numpy"):
                yield EncodedRows(**part)
        except ray.exceptions.RayError as error:
            raise _user_error(error) or error from None


class _Encoder:
    """An actor: holds the tokenizer and encodes spans of rows."""

    def __init__(self, tokenizer: "Tokenizer", table: VectorTable, size: int, folder: str) -> None:
        try:
            os.chdir(folder)  # so that a relative path means the same
        except OSError as error:
            raise UserError(f"a node of the Ray cluster has no folder {folder}: work in one that all share") from error
        self._tokenizer, self._table, self._size = tokenizer, table, size

    def __call__(self, spans: dict[str, npt.NDArray[np.int64]]) -> Iterator[dict[str, npt.NDArray[Any]]]:
        for start, stop in zip(spans["start"].tolist(), spans["stop"].tolist(), strict=True):
            for part in encode_range(self._tokenizer, self._table, self._size, start, stop):
                yield part._asdict()


@contextmanager
def _cluster(ray: Any) -> Iterator[None]:
    """Use a running Ray, the cluster of ``RAY_ADDRESS``, or a local one that is shut down afterwards."""
    started = not ray.is_initialized()
    if started:
        address = os.environ.get("RAY_ADDRESS") or "local"
        dashboard = {"include_dashboard": False} if address == "local" else {}
        try:
            host, colon, port = address.rpartition("://")[2].rpartition(":")
            if colon and port.isdigit():  # fail early: Ray itself would try for minutes
                socket.create_connection((host, int(port)), timeout=_TIMEOUT).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **dashboard)
        except (Exception, SystemExit) as error:  # a wrong address or a busy machine raise many kinds
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"cannot use Ray at {address} ({reason}): check RAY_ADDRESS, or unset it to use this machine"
            ) from error
    # Ray Data shows no progress bars of its own, and no stack trace for a mistake in the table.
    context, log = require("ray.data", "scale").DataContext.get_current(), logging.getLogger("ray.data")
    bars, level = context.enable_progress_bars, log.level
    context.enable_progress_bars = False
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        context.enable_progress_bars = bars
        log.setLevel(level)
        if started:
            ray.shutdown()


def _user_error(error: BaseException | None) -> UserError | None:
    """The ``UserError`` that made a Ray task fail, if there is one, without the lines that Ray adds."""
    while error is not None:
        cause = getattr(error, "cause", None) or error.__cause__
        if isinstance(error, UserError) and not isinstance(cause, UserError):
            return UserError(str(error).splitlines()[0])
        error = cause
    return None
