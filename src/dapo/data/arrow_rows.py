"""Parquet files and Arrow tables. Integers, decimals and texts come as they are stored."""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dapo.data.rows import RawRow, Values
from dapo.errors import DataError

_ROWS_A_BATCH = 512
_BYTES_A_READ = 1 << 20


class Parquet:
    """One parquet file. A position is the row's number in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def schema(self) -> Any:
        """The file's Arrow schema."""
        with self._open() as file:
            return file.schema_arrow

    def _open(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(self.path, buffer_size=_BYTES_A_READ, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path} cannot be read as parquet: {error}; correct the path or the file") from error

    def _batches(self, columns: frozenset[str] | None) -> Iterator[Any]:
        import pyarrow as pa

        with self._open() as file:
            names = file.schema_arrow.names
            wanted = None if columns is None else [name for name in names if name in columns]
            try:
                yield from file.iter_batches(batch_size=_ROWS_A_BATCH, columns=wanted)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{self.path} is damaged: {error}; fetch it again") from error

    def scan(self, columns: frozenset[str] | None = None) -> Iterator[RawRow]:
        """Yield the rows batch by batch: a row group is never held whole, however large it is."""
        place = 0
        for batch in self._batches(columns):
            for values in batch.to_pylist():
                yield RawRow(position=place, values=values)
                place += 1

    def store(self, positions: NDArray[np.int64]) -> Sequence[Values]:
        """Copy the wanted rows into an Arrow file without a name and return them through a memory map.

        The file lies in the folder for temporary files (TMPDIR) and is gone when the sequence is.
        """
        return _map_batches(self.schema(), _chosen(self._batches(None), positions))


class HubTable:
    """A data set that `datasets` has read itself, for formats that are not read here. A position is a row's number."""

    def __init__(self, dataset: Any, name: str) -> None:
        self._dataset = dataset
        self.path = Path(name)

    def scan(self, columns: frozenset[str] | None = None) -> Iterator[RawRow]:
        """Yield the rows of the memory-mapped table."""
        table = self._dataset if columns is None else self._dataset.select_columns(sorted(columns))
        for place, values in enumerate(table):
            yield RawRow(position=place, values=values)

    def store(self, positions: NDArray[np.int64]) -> Sequence[Values]:
        """Return a view of the memory-mapped table."""
        view: Sequence[Values] = self._dataset.select(positions)
        return view


def _chosen(batches: Iterable[Any], positions: NDArray[np.int64]) -> Iterator[Any]:
    """Yield batches of the rows at these rising positions."""
    import pyarrow as pa

    begin = 0
    waiting: list[Any] = []
    num_waiting = 0
    for batch in batches:
        low, high = np.searchsorted(positions, [begin, begin + len(batch)])
        if high > low:
            waiting.append(batch.take(pa.array(positions[low:high] - begin)))
            num_waiting += high - low
        begin += len(batch)
        if num_waiting >= _ROWS_A_BATCH:
            yield pa.concat_batches(waiting)
            waiting, num_waiting = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def _map_batches(schema: Any, batches: Iterable[Any]) -> Sequence[Values]:
    import pyarrow as pa

    handle, name = tempfile.mkstemp(prefix="dapo-rows-", suffix=".arrow")
    os.close(handle)
    try:
        with pa.OSFile(name, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return _MappedBatches(pa.ipc.open_file(pa.memory_map(name)))
    finally:
        os.unlink(name)


class _MappedBatches(Sequence[Values]):
    def __init__(self, file: Any) -> None:
        self._file = file
        lengths = [len(file.get_batch(number)) for number in range(file.num_record_batches)]
        self._begins = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]

    def __len__(self) -> int:
        return int(self._begins[-1])

    @overload
    def __getitem__(self, index: int) -> Values: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Values]: ...
    def __getitem__(self, index: int | slice) -> Values | Sequence[Values]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        place = range(len(self))[index]
        number = bisect_right(self._begins, place) - 1
        row: Values = self._file.get_batch(number).slice(place - self._begins[number], 1).to_pylist()[0]
        return row
