"""Physical KV memory in blocks of a fixed size, and who uses which (PagedAttention, Kwon et al. 2023, §4).

A block is in one of three states:
    free      no user, nobody knows what is in it: `allocate` may hand it out
    in use    one user or more: sequences whose block table names it
    cached    no user, but a prefix cache has filed it: resident, its content good, not free until evicted
Releasing a reference and evicting a block are two steps, and `allocate` takes neither: a pool whose blocks
are all in use or cached has none free.  What a block holds is `PagedKVCache`'s business.
"""

from collections import deque
from dataclasses import dataclass

from mgpt.paged_attention import paged_attention
from mgpt.paged_cache import OutOfBlocks, PagedKVCache
from mgpt.validate import integer

__all__ = ["Block", "BlockPool", "OutOfBlocks", "PagedKVCache", "paged_attention"]


@dataclass(frozen=True)
class Block:
    """One block as it stands: its id, how many use it, and whether a prefix cache has filed it."""

    id: int
    users: int
    filed: bool

    @property
    def state(self):
        """"in use", "cached" or "free"."""
        return "in use" if self.users else "cached" if self.filed else "free"


class BlockPool:
    """num_blocks blocks of block_size positions each.  Ids are the ints 0 .. num_blocks - 1.

    An id out of range is a ValueError everywhere; whatever raises leaves the pool unchanged.
    Free blocks are handed out in the order in which they became free.
    """

    def __init__(self, num_blocks, block_size):
        self.num_blocks = integer("num_blocks", num_blocks, at_least=1)
        self.block_size = integer("block_size", block_size, at_least=1)
        self.storage = None  # K and V of every block; the first PagedKVCache over the pool makes it
        self._users = [0] * self.num_blocks
        self._filed_by = {}  # id -> the prefix cache that answers for its content
        self._free = deque(range(self.num_blocks))

    @property
    def num_free(self):
        """Blocks that `allocate` can hand out now."""
        return len(self._free)

    @property
    def num_in_use(self):
        """Blocks with one user or more; a shared block counts once."""
        return sum(users > 0 for users in self._users)

    @property
    def num_cached(self):
        """Blocks without a user that a prefix cache keeps."""
        return self.num_resident - self.num_in_use

    @property
    def num_resident(self):
        """Blocks in use or cached: all that are not free."""
        return self.num_blocks - self.num_free

    def allocate(self):
        """The id of a free block, which then has one user.

        RuntimeError when none is free.
        """
        if not self._free:
            raise OutOfBlocks(f"none of the {self.num_blocks} blocks is free: "
                              f"{self.num_in_use} in use, {self.num_cached} cached "
                              "without a user (evict makes those free)")
        block_id = self._free.popleft()
        self._users[block_id] = 1
        return block_id

    def share(self, block_id):
        """Count one more user of a resident block.

        ValueError for a free one: its content is nobody's.
        """
        block = self.block(block_id)
        if block.state == "free":
            raise ValueError(f"block {block.id} is free: "
                             "only a block in use or cached can be shared")
        self._users[block.id] += 1

    def release(self, block_id):
        """Count one user less; the last leaves the block free,
        or cached when a prefix cache has filed it.

        ValueError when the block has no user.
        """
        block = self.block(block_id)
        if not block.users:
            raise ValueError(f"block {block.id} has no user to release ({block.state})")
        self._users[block.id] -= 1
        self._free_if_forgotten(block.id)

    def ref_count(self, block_id):
        """How many use the block: 0 when it is free or cached."""
        return self.block(block_id).users

    def block(self, block_id):
        """The `Block` as it stands."""
        if integer("block_id", block_id) >= self.num_blocks:
            raise ValueError(f"block_id must be below num_blocks = {self.num_blocks}, got {block_id!r}")
        return Block(int(block_id), self._users[block_id], int(block_id) in self._filed_by)

    def writable(self, block_id):
        """True when the block has one user and no prefix cache answers for its content."""
        block = self.block(block_id)
        return block.users == 1 and not block.filed

    def file(self, block_id, owner):
        """Let `owner` (a prefix cache) answer for the content: without a user the block is cached, not free.

        ValueError when it is free or already filed.
        """
        block = self.block(block_id)
        if block.filed or not block.users:
            raise ValueError(f"block {block.id} cannot be filed: {'it already is' if block.filed else 'free'}")
        self._filed_by[block.id] = owner

    def unfile(self, block_id, owner):
        """Undo `file`: a block without users becomes free.  ValueError unless `owner` itself has filed it."""
        if self.filed_by(block_id) is not owner:
            raise ValueError(f"block {block_id} is not filed by this owner")
        del self._filed_by[block_id]
        self._free_if_forgotten(block_id)

    def filed_by(self, block_id):
        """Who has filed the block; None when nobody has."""
        return self._filed_by.get(self.block(block_id).id)

    def _free_if_forgotten(self, block_id):
        if not self._users[block_id] and block_id not in self._filed_by:
            self._free.append(block_id)

    def check_integrity(self):
        """AssertionError unless every block is in exactly one state: free + in use + cached = num_blocks."""
        free = set(self._free)
        law(len(free) == len(self._free), "a block is free twice")
        law(len(self._users) == self.num_blocks and min(self._users) >= 0, "a user count is wrong")
        forgotten = {i for i, users in enumerate(self._users) if users == 0 and i not in self._filed_by}
        law(free == forgotten, f"free {sorted(free)}, but {sorted(forgotten)} have neither user nor key")
        law(set(self._filed_by) <= set(range(self.num_blocks)), "a filed block does not exist")


def law(holds, message):
    """AssertionError with `message` unless the law holds: a fault of the program, never of its input."""
    if not holds:
        raise AssertionError(message)
