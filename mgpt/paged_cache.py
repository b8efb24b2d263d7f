"""The KV cache in blocks: a block table leads from a sequence's logical positions to slots of a shared pool.

Shapes: L layers, K KV heads, N blocks of the pool, P positions a block, S positions held, T new positions,
D head_dim.  Position p of a sequence is slot p % P of physical block table[p // P].
"""

import copy
from dataclasses import dataclass

import numpy as np

from mgpt.validate import float_type, integer


class OutOfBlocks(RuntimeError, ValueError):
    """Too few blocks are free: the pool's RuntimeError, and the ValueError of an append past the capacity."""


@dataclass(frozen=True)
class BlockStorage:
    """K and V of all the blocks of a pool, each (L, K, N, P, D): blocks that are neighbours are one view."""

    k: np.ndarray
    v: np.ndarray


class PagedKVCache:
    """Keys and values of one sequence in blocks of `pool`, for `forward`'s seam.

    Caches over one pool share its storage, so a block that stands in two tables is one piece of memory.
    Blocks are taken when a position is first written into them.  A block that has another user, or that a
    prefix cache has filed, is never written: the writer gets a copy.
    dtype: any float type of NumPy.  prefix_cache: where to evict blocks without a user when too few are free;
    None never evicts.  ValueError when the pool's resident blocks hold K/V of another shape or dtype.  While
    none is resident a new cache may bring another; the older ones, empty then, refuse to be filled after it.
    """

    def __init__(self, config, pool, dtype=np.float64, *, prefix_cache=None):
        dtype, width = self._stored_vector(config, dtype)
        shape = (config.n_layer, config.n_kv_head, pool.num_blocks, pool.block_size, width)
        store = pool.storage
        if store is None or (store.k.shape, store.k.dtype) != (shape, dtype):
            if store is not None and pool.num_resident:
                raise ValueError(f"the pool's blocks hold {store.k.dtype} {store.k.shape}, "
                                 f"and this cache needs {dtype} {shape}")
            store = pool.storage = BlockStorage(np.zeros(shape, dtype), np.zeros(shape, dtype))
        self._config, self._pool, self._store, self._prefix_cache = config, pool, store, prefix_cache
        self._table, self._seq_len = [], 0

    @property
    def seq_len(self):
        """Positions held; does not change within a pass."""
        return self._seq_len

    @property
    def block_table(self):
        """Physical block ids in logical order, a tuple."""
        return tuple(self._table)

    def append(self, layer, k, v):
        """Write rows k, v (K, T, D) of one layer behind the positions held; return all rows (K, S, D).

        Views while the table is a run of neighbouring blocks, copies otherwise.  OutOfBlocks (a RuntimeError
        and a ValueError), with nothing written and no block taken, when the pool has too few.
        """
        stored = self._store.k[layer], self._store.v[layer]  # (K, N, P, D)
        n_kv, _, _, width = stored[0].shape
        if k.ndim != 3 or k.shape != v.shape or (k.shape[0], k.shape[2]) != (n_kv, width):
            raise ValueError(f"k and v must both be ({n_kv}, T, {width}), got {k.shape} and {v.shape}")
        end = self._seq_len + k.shape[1]
        if end > self._seq_len:
            self._make_room(end)
        block, slot = np.divmod(np.arange(self._seq_len, end), self._pool.block_size)
        block = np.array(self._table, dtype=int)[block]  # (T,) logical -> physical
        both = []
        for pages, rows in zip(stored, (k, v)):
            pages[:, block, slot] = rows
            both.append(self._rows(pages, end))
        return tuple(both)

    def advance(self, n):
        """Count n appended positions as held: once, at the end of a pass."""
        n = integer("n", n)
        if self._seq_len + n > len(self._table) * self._pool.block_size:
            raise ValueError(f"cannot advance by {n}: {self._seq_len} positions are held in "
                             f"{len(self._table)} blocks of {self._pool.block_size}")
        self._seq_len += n

    def truncate(self, n):
        """Keep the first n positions; blocks that hold none of them are released."""
        if integer("n", n) > self._seq_len:
            raise ValueError(f"cannot truncate to {n} positions: only {self._seq_len} are held")
        self._seq_len = int(n)
        while len(self._table) > self._whole(self._seq_len):
            self._pool.release(self._table.pop())

    def release(self):
        """Give all references back, once: the cache is empty then, and may be filled again."""
        self.truncate(0)

    def attach(self, block_ids, num_cached_tokens):
        """Begin an empty cache with blocks that hold its first positions already (`PrefixCache.match`).

        Takes one reference a block, or none at all when it raises: ValueError unless the cache is empty, the
        blocks are just those that num_cached_tokens positions fill, and none of them is free.
        """
        n, ids = integer("num_cached_tokens", num_cached_tokens), list(block_ids)
        self._check_storage()
        if self._table:
            raise ValueError(f"only an empty cache can take a prefix, this one has {len(self._table)} blocks")
        if len(ids) != self._whole(n):
            raise ValueError(f"{n} positions stand in {self._whole(n)} blocks of {self._pool.block_size}, "
                             f"got {len(ids)} block_ids")
        free = [block_id for block_id in ids if self._pool.block(block_id).state == "free"]
        if free:
            raise ValueError(f"block_ids must be resident, but {free} are free")
        for block_id in ids:
            self._pool.share(block_id)
        self._table, self._seq_len = [int(block_id) for block_id in ids], n

    def fork(self):
        """A second cache with the same positions in the same blocks; who writes into one first copies it."""
        twin = copy.copy(self)
        twin._table, twin._seq_len = [], 0
        twin.attach(self._table[: self._whole(self._seq_len)], self._seq_len)
        return twin

    def pages(self, layer):
        """K and V of all the pool's blocks in one layer, views (K, N, P, D): index N by `block_table`."""
        return self._store.k[layer], self._store.v[layer]

    @property
    def block_nbytes(self):
        """Bytes of K and V of one block; times pool.num_resident, what all caches of the pool hold."""
        return (self._store.k.nbytes + self._store.v.nbytes) // self._pool.num_blocks

    @property
    def nbytes(self):
        """Bytes of K and V of the positions held: 2 · L · S · K · D · bytes a value, shared or not."""
        return self.block_nbytes // self._pool.block_size * self._seq_len

    @property
    def capacity_nbytes(self):
        """Bytes of the blocks in the table, shared or not; what exceeds nbytes is waste in the last block."""
        return self.block_nbytes * len(self._table)

    @staticmethod
    def _stored_vector(config, dtype):
        """What a slot holds of one K or V vector: the type of its elements, and how many there are."""
        return float_type("dtype", dtype), config.head_dim

    def _whole(self, n):
        return -(-n // self._pool.block_size)

    def _check_storage(self):
        if self._store is not self._pool.storage:
            raise ValueError("the pool's storage was replaced by that of another shape or dtype, while no "
                             "block was resident: this cache cannot be filled any more")

    def _make_room(self, end):
        """Blocks for all positions below `end`, and own copies
        of those not to be written: all or nothing.
        """
        self._check_storage()
        first, last = self._seq_len // self._pool.block_size, self._whole(end)
        touched = range(first, min(last, len(self._table)))
        copied = [i for i in touched if not self._pool.writable(self._table[i])]
        fresh = self._take(len(copied) + max(last - len(self._table), 0))
        for index, block_id in zip(copied, fresh):
            for both in (self._store.k, self._store.v):
                both[:, :, block_id] = both[:, :, self._table[index]]
            self._pool.release(self._table[index])
            self._table[index] = block_id
        self._table += fresh[len(copied) :]

    def _take(self, n):
        short = n - self._pool.num_free
        if short > 0 and self._prefix_cache is not None and self._prefix_cache.num_evictable >= short:
            self._prefix_cache.evict(short)
        if n > self._pool.num_free:
            raise OutOfBlocks(f"{n} more blocks are needed, {self._pool.num_free} of {self._pool.num_blocks} "
                              "are free")
        return [self._pool.allocate() for _ in range(n)]

    def _rows(self, pages, end):
        n_kv, _, size, width = pages.shape
        first, n = self._table[0] if self._table else 0, len(self._table)
        if self._table == list(range(first, first + n)):
            pages = pages[:, first : first + n]  # a slice can be reshaped without a copy
        else:
            pages = np.take(pages, self._table, axis=1)
        return pages.reshape(n_kv, n * size, width)[:, :end]  # (K, S, D)
