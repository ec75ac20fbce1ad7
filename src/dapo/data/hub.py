"""Data sets of the Hugging Face Hub, or a local folder laid out like one, through the library `datasets`.

`datasets` finds and fetches the files. JSON lines and parquet are then read by this package: read by `datasets`, a JSON
column with one integer above 2**63 turns into floats, and 105263157894736842 into 105263157894736848.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.data.rows import SUFFIXES, RowFile, open_file
from dapo.errors import DataError

if TYPE_CHECKING:
    from dapo.data.config import SourceConfig


def open_hub(source: SourceConfig) -> tuple[RowFile, ...]:
    """Open one split of a data set. Raises DataError where it, its subset or its split cannot be had."""
    import datasets

    cache = None if source.cache_folder is None else str(source.cache_folder)
    try:
        builder = datasets.load_dataset_builder(source.path, name=source.subset, cache_dir=cache)
        files = builder.config.data_files
        if not files or not all(_is_read_here(str(name)) for names in files.values() for name in names):
            return (_read_by_datasets(source, cache),)
        split = choose_split(list(files), source)
        settings = datasets.DownloadConfig(cache_dir=None if cache is None else str(Path(cache) / "downloads"))
        local = datasets.DownloadManager(download_config=settings).download([str(name) for name in files[split]])
    except (OSError, ValueError) as error:
        raise DataError(
            f"The data set {source.path!r} (subset {source.subset or 'default'}, split {source.split or 'default'}) "
            f"cannot be had: {error}. Correct the name, or download its files and give their folder as path."
        ) from error
    return tuple(open_file(Path(place), str(name)) for place, name in zip(local, files[split], strict=True))


def choose_split(splits: list[str], source: SourceConfig) -> str:
    """Return the split that is asked for, `train`, or the only one. Raises DataError."""
    if source.split is not None:
        if source.split not in splits:
            raise DataError(f"{source.path} has no split {source.split!r}; it has {', '.join(splits)}")
        return source.split
    if len(splits) == 1:
        return splits[0]
    if "train" in splits:
        return "train"
    raise DataError(f"{source.path} has the splits {', '.join(splits)}; say which with split = ...")


def _is_read_here(name: str) -> bool:
    return Path(name.split("::")[-1]).suffix.lower() in SUFFIXES


def _read_by_datasets(source: SourceConfig, cache: str | None) -> RowFile:
    import datasets

    from dapo.data.arrow_rows import HubTable

    every: Any = datasets.load_dataset(source.path, name=source.subset, cache_dir=cache)
    return HubTable(every[choose_split(list(every), source)], source.path)
