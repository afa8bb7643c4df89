"""Who bought what, in time order: readers, filters and the split for next-item recommendation.

Examples:
    >>> rows = [(user, item, time) for user in "ab" for time, item in enumerate(["soap", "comb", "brush"])]
    >>> lines = ["user_id,item_id,timestamp", *(f"{u},{i},{t}" for u, i, t in rows)]
    >>> with open("orders.csv", "w") as file:
    ...     print(*lines, sep=chr(10), file=file)
    >>> data = ghrq.data.interactions.read_orders(Path("orders.csv"))
    >>> split = ghrq.data.interactions.leave_two_out(data)
    >>> [data.items[row] for row in split.test]  # the last item of each user
    ['brush', 'brush']

"""

from ghrq.data.interactions.amazon import read_amazon
from ghrq.data.interactions.compact import read_compact
from ghrq.data.interactions.orders import read_orders
from ghrq.data.interactions.sequences import Interactions, Split, leave_two_out

__all__ = ["Interactions", "Split", "leave_two_out", "read_amazon", "read_compact", "read_orders"]
