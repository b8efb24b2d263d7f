"""Sharing the K/V of equal prefixes: which blocks may be used again, and what makes two prefixes equal.

A block's key is everything that its K/V depend on, and who may see them: the model, the adapter, the tenant,
the token ids of the block and of the whole prefix before it.  The keys form a tree: one root for each (model,
tenant, adapter), one node for each block behind it.  A child is looked up by its token ids in a dict, which
compares the ids themselves after their hash, and the node above stands for all that comes before; so neither a
collision of hashes nor an equal block behind another prefix can ever be a hit.
"""

import dataclasses
import hashlib
import heapq
import numbers

import numpy as np

from mgpt.blocks import law
from mgpt.validate import integer


@dataclasses.dataclass(eq=False)
class _Node:
    """A filed block (a root has none).  last_used counts the cache's own events, not time."""

    parent: "_Node | None" = None
    tokens: tuple = ()
    block_id: int | None = None
    depth: int = 0
    last_used: int = 0
    children: dict = dataclasses.field(default_factory=dict)  # token ids of a block -> node


class PrefixCache:
    """Finds resident blocks of `pool` by the token ids that they hold.

    It never counts as a user: `match` and `insert` take no reference, the caller shares each id that it wants to
    use, at once, before anything else touches the pool.  A filed block stays resident when its last user leaves,
    until `evict`.  model_key: any hashable value that differs whenever the K/V could, such as `fingerprint(...)`.
    """

    def __init__(self, pool, *, model_key):
        self._pool = pool
        self._model_key = model_key
        self._root_key(None, None)  # an unhashable key is refused here
        self._roots, self._nodes, self._events = {}, {}, 0  # root key -> node, block id -> node

    def __len__(self):
        """Blocks filed."""
        return len(self._nodes)

    @property
    def num_evictable(self):
        """Filed blocks without a user: what `evict` could free."""
        return sum(self._pool.ref_count(block_id) == 0 for block_id in self._nodes)

    def match(self, token_ids, *, tenant=None, adapter=None):
        """(block ids, number of cached tokens) of the longest filed prefix of token_ids.

        Whole blocks only and at most len(token_ids) - 1 positions: the last one has to be processed to give
        logits.  No reference is taken.  ValueError for anything but a sequence of token ids.
        """
        ids = token_list("token_ids", token_ids)
        node, path = self._roots.get(self._root_key(tenant, adapter)), []
        for tokens in self._whole_blocks(ids[:-1]):
            node = node.children.get(tokens) if node else None
            if node is None:
                break
            path.append(node)
        self._touch(path)
        return [node.block_id for node in path], len(path) * self._pool.block_size

    def insert(self, token_ids, block_ids, *, tenant=None, adapter=None):
        """File block_ids[i] under the i-th whole block of token_ids; how many were filed anew.

        token_ids start at position 0 and are the processed ones: every position of the blocks must hold its K/V.
        A partial tail is never filed, and with fewer ids than whole blocks, or more, the rest is left alone.
        The first block of an equal key stays; a later one remains its owner's private block.  ValueError, with
        nothing filed, for a block that is free, filed under another key, or given twice.
        """
        ids = token_list("token_ids", token_ids)
        root_key = self._root_key(tenant, adapter)
        pairs = list(zip(self._whole_blocks(ids), token_list("block_ids", block_ids)))
        self._check_blocks(self._roots.get(root_key), pairs)
        if not pairs:
            return 0
        node, path, before = self._roots.setdefault(root_key, _Node()), [], len(self)
        for tokens, block_id in pairs:
            if tokens not in node.children:
                self._pool.file(block_id, self)
                node.children[tokens] = self._nodes[block_id] = _Node(node, tokens, block_id, node.depth + 1)
            node = node.children[tokens]
            path.append(node)
        self._touch(path)
        return len(self) - before

    def evict(self, n):
        """Forget up to n blocks without a user, which become free; their ids in the order of eviction.

        The least recently used first (used = found by `match` or given to `insert`), of equals the deepest of a
        chain.  A use of a block is a use of all before it, so no block goes before one behind it, except one that
        is still in use: that cannot be found any more, and is free when its last user leaves.
        """
        idle = [node for node in self._nodes.values() if self._pool.ref_count(node.block_id) == 0]
        victims = heapq.nsmallest(integer("n", n), idle, key=lambda node: (node.last_used, -node.depth))
        for node in victims:
            self._forget(node)
        return [node.block_id for node in victims]

    def check_integrity(self):
        """AssertionError unless tree, block index and pool agree; the pool's own laws are checked too."""
        self._pool.check_integrity()
        stack, reached = list(self._roots.values()), {}
        while stack:
            node = stack.pop()
            for tokens, child in node.children.items():
                where = f"block {child.block_id}"
                law(child.parent is node and child.tokens == tokens, f"{where} hangs at the wrong place")
                law(len(tokens) == self._pool.block_size, f"{where} is filed as a partial block")
                law(child.depth == node.depth + 1, f"{where} has the wrong depth")
                law(node.parent is None or node.last_used >= child.last_used, f"{where} was used without its prefix")
                law(child.block_id not in reached, f"{where} is filed twice")
                reached[child.block_id] = child
                stack.append(child)
        law(reached == self._nodes, "the tree and the index of blocks differ")
        for block_id in reached:
            law(self._pool.filed_by(block_id) is self, f"block {block_id} is not filed in the pool")

    def _root_key(self, tenant, adapter):
        # With the types beside the values, because 1 == True == 1.0 must not join two tenants.
        key = tuple((type(part), part) for part in (self._model_key, tenant, adapter))
        try:
            hash(key)
        except TypeError as error:
            raise ValueError(f"model_key, tenant and adapter must be hashable: {error}") from None
        return key

    def _whole_blocks(self, ids):
        size = self._pool.block_size
        return [tuple(ids[start : start + size]) for start in range(0, len(ids) - size + 1, size)]

    def _check_blocks(self, node, pairs):
        given = set()
        for tokens, block_id in pairs:
            node = node.children.get(tokens) if node else None
            block = self._pool.block(block_id)
            if block.state == "free":
                raise ValueError(f"block_ids must be resident, but block {block_id} is free")
            if block.filed and (node is None or node.block_id != block_id):
                raise ValueError(f"block_ids: block {block_id} is already filed under another key")
            if block_id in given:
                raise ValueError(f"block_ids: block {block_id} is given twice")
            given.add(block_id)

    def _touch(self, path):
        self._events += 1
        for node in path:
            node.last_used = self._events

    def _forget(self, node):
        del node.parent.children[node.tokens]
        stack = [node]
        while stack:  # what cannot be reached any more is forgotten with it
            node = stack.pop()
            stack.extend(node.children.values())
            del self._nodes[node.block_id]
            self._pool.unfile(node.block_id, self)


def longest_common_prefix(a, b):
    """How many leading token ids a and b share: from the first that differs on, K/V are no longer valid."""
    a, b = token_list("a", a), token_list("b", b)
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def token_list(name, ids):
    """`ids` as a list of ints.  ValueError unless it is a flat sequence of integers >= 0."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and (array.dtype.kind not in "iu" or array.min() < 0)):
        raise ValueError(f"{name} must be a flat sequence of integers >= 0, got {ids!r}")
    return [int(value) for value in array]


def fingerprint(params, config, *, adapter=None, vocabulary=None, settings=None):
    """A hex string (SHA-256) that differs when anything differs on which K/V depend.

    params and config: weights with their dtypes and shapes; heads, widths, norm and RoPE settings.
    adapter: a name or arrays.  vocabulary: the tokenizer's entries in the order of their ids, or a dict.
    settings: whatever else the engine may vary: the attention rule, the cache's dtype, a position offset.
    Each may be any nesting of dicts, sequences, arrays, numbers, strings and None; ValueError for other things.
    """
    digest = hashlib.sha256()
    _feed(digest, [params, config, adapter, vocabulary, settings])
    return digest.hexdigest()


def _feed(digest, value):
    """Write `value` so that two different values never give the same bytes: kind, length, content."""
    def write(kind, content=b""):
        digest.update(b"%s %d " % (kind, len(content)) + content)

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if value is None or isinstance(value, (bool, np.bool_)):
        write(str(value).encode())
    elif isinstance(value, numbers.Real):  # 10_000 and 10_000.0 are one setting
        whole = float(value).is_integer()
        write(b"number", (str(int(value)) if whole else float(value).hex()).encode())
    elif isinstance(value, (str, bytes)):
        write(type(value).__name__.encode(), value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        array = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        write(b"array", f"{array.dtype.str} {value.shape}".encode())
        write(b"content", array.tobytes())
    elif isinstance(value, dict):
        write(b"dict", str(len(value)).encode())
        for key in sorted(value, key=lambda key: (type(key).__name__, key)):
            _feed(digest, key)
            _feed(digest, value[key])
    elif isinstance(value, (list, tuple)):
        write(b"list", str(len(value)).encode())
        for item in value:
            _feed(digest, item)
    else:
        raise ValueError(f"a fingerprint covers dicts, sequences, arrays, numbers and text, got {type(value).__name__}")
