"""What people see of an item."""

from labelchef.base.campaigns import ItemContent
from labelchef.server.store.rows import ItemRow


def content_of(row: ItemRow) -> ItemContent:
    """What people see of an item's row."""
    fields = dict(row.fields or {})
    images = [row.image, *(fields.pop(name, None) for name in row.images or ())]
    return ItemContent(row.text, row.image, fields, tuple(str(one) for one in images if one))
