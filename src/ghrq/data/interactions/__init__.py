"""Who bought what, in time order: readers, filters and the split for next-item recommendation.

>>> split = leave_two_out(read_compact(Path("amazon-beauty")))
>>> split.train.sequence, split.test
"""

from ghrq.data.interactions.amazon import read_amazon
from ghrq.data.interactions.compact import read_compact
from ghrq.data.interactions.orders import read_orders
from ghrq.data.interactions.sequences import Interactions, Split, leave_two_out

__all__ = ["Interactions", "Split", "leave_two_out", "read_amazon", "read_compact", "read_orders"]
