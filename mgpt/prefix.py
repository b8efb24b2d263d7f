"""Sharing the K/V of equal prefixes: which blocks may be used again, and what makes two prefixes equal.

A block's key is everything that its K/V depend on, and who may see them: model, adapter, tenant, the token
ids of the block and of the whole prefix before it.  The keys form a tree: a root for each (model, tenant,
adapter), a node for each block behind it.  A child is looked up by its token ids in a dict, which compares
the ids after their hash, and the node above stands for all that comes before: neither a collision of hashes
nor an equal block behind another prefix can ever be a hit.
"""

import heapq
from dataclasses import dataclass, field

from mgpt.blocks import law
from mgpt.validate import integer
from mgpt.validity import fingerprint, longest_common_prefix, token_list

__all__ = ["PrefixCache", "fingerprint", "longest_common_prefix"]


@dataclass(eq=False)
class _Node:
    """A filed block (a root has none).  last_used counts the cache's own events, not time."""

    parent: "_Node | None" = None
    tokens: tuple = ()
    block_id: int | None = None
    depth: int = 0
    last_used: int = 0
    children: dict = field(default_factory=dict)  # token ids of a block -> node


class PrefixCache:
    """Finds resident blocks of `pool` by the token ids that they hold.

    It never counts as a user: `match` and `insert` take no reference, the caller shares each id that it wants
    to use before anything else touches the pool.  A filed block stays resident when its last user leaves,
    until `evict`.  model_key: any hashable value that differs whenever the K/V could, as `fingerprint(...)`.
    """

    def __init__(self, pool, *, model_key):
        self._pool = pool
        self._model_key = model_key
        self._root_key(None, None)  # an unhashable key is refused here
        self._roots, self._nodes, self._events = {}, {}, 0  # root key -> node, block id -> node

    @property
    def num_filed(self):
        """Blocks that can be found.  (No `len`: an empty cache would be false, and `if prefix_cache` a trap.)"""
        return len(self._nodes)

    @property
    def num_evictable(self):
        """Filed blocks without a user: what `evict` could free."""
        return sum(self._pool.ref_count(block_id) == 0 for block_id in self._nodes)

    def match(self, token_ids, *, tenant=None, adapter=None):
        """(block ids, number of cached tokens)
        of the longest filed prefix of token_ids.

        Whole blocks only, and at most len(token_ids) - 1 positions: the last one has to
        be processed to give logits.  No reference is taken.
        ValueError for anything but a flat sequence of token ids.
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

        token_ids start at position 0 and are those already processed: each position's K/V is in its block.
        A partial tail is never filed; with fewer or more block ids than whole blocks, the rest is left alone.
        The first block of an equal key stays; a later one remains its owner's private block.
        ValueError, with nothing filed, for a block that is free, filed under another key, or given twice.
        """
        ids = token_list("token_ids", token_ids)
        root_key = self._root_key(tenant, adapter)
        pairs = list(zip(self._whole_blocks(ids), token_list("block_ids", block_ids)))
        self._check_blocks(self._roots.get(root_key), pairs)
        if not pairs:
            return 0
        node, path, before = self._roots.setdefault(root_key, _Node()), [], self.num_filed
        for tokens, block_id in pairs:
            if tokens not in node.children:
                self._pool.file(block_id, self)
                node.children[tokens] = self._nodes[block_id] = _Node(node, tokens, block_id, node.depth + 1)
            node = node.children[tokens]
            path.append(node)
        self._touch(path)
        return self.num_filed - before

    def evict(self, n):
        """Forget up to n blocks without a user, which become free;
        their ids in the order of eviction.

        The least recently used first (used = found by `match` or given to `insert`),
        of equals the deepest of a chain.  A use of a block is a use of all before it,
        so none goes before one behind it, unless that is still in use: it cannot be
        found any more then, and is free when its last user leaves.
        """
        idle = [node for node in self._nodes.values()
                if self._pool.ref_count(node.block_id) == 0]
        victims = heapq.nsmallest(integer("n", n), idle,
                                  key=lambda node: (node.last_used, -node.depth))
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
                law(not node.depth or node.last_used >= child.last_used,
                    f"{where} was used without its parent")
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
