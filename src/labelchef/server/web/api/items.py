"""The browser of items, for leads: list with filters, one item, similar items, actions on many."""

from dataclasses import fields, replace
from typing import Annotated, TypeVar

from fastapi import Depends, Query

from labelchef.base.browsing import (
    ActionDone,
    Asked,
    Disagreement,
    ItemDetail,
    ItemLine,
    ItemMap,
    ItemQuery,
    ItemsPage,
    ItemState,
    MapPoint,
    SimilarItems,
    SortBy,
)
from labelchef.base.campaigns import SplitName
from labelchef.base.errors import InvalidInputError
from labelchef.server.campaigns.charts import map2d
from labelchef.server.items import actions, items, similar
from labelchef.server.web.forms import ActionForm, CampaignPath, ItemPath, QueryForm
from labelchef.server.web.paging import Cursor
from labelchef.server.web.policies import ITEM, Api, Lead, Store
from labelchef.server.web.views import image_address, with_address

routes = Api("items", "/campaigns/{campaign}")
_FILTER = (422, "filter", "a filter that does not exist, or not for these items")
_Kind = TypeVar("_Kind", SplitName, SortBy, Disagreement, ItemState | Asked)


def filters(campaign: CampaignPath, ws: Store, asking: Annotated[QueryForm, Depends()]) -> ItemQuery:
    """What the address asks for."""
    classes = items.class_names(ws, campaign)

    def class_id(name: str, value: str) -> int | None:
        if not value:
            return None
        if value in classes:
            return classes.index(value)
        if value.isascii() and value.isdecimal() and int(value) < len(classes):
            return int(value)
        raise InvalidInputError(f"{name} is {value!r}; expected a class by name, or its position", code="filter")

    def member(name: str, value: str, known: tuple[_Kind, ...]) -> _Kind:
        for one in known:
            if one == value:
                return one
        raise InvalidInputError(f"{name} is {value!r}; expected one of: {', '.join(known)}", code="filter")

    states: tuple[ItemState | Asked, ...] = (*ItemState, *Asked)
    return ItemQuery(
        q=asking.q,
        split=member("split", asking.split or SplitName.TRAIN, tuple(SplitName)),
        predicted=class_id("predicted", asking.predicted),
        label=class_id("label", asking.label),
        believed=class_id("believed", asking.believed),
        weak=class_id("weak", asking.weak),
        disagree=member("disagree", asking.disagree, tuple(Disagreement)) if asking.disagree else None,
        suspect=asking.suspect,
        source=asking.source,
        vote=class_id("vote", asking.vote),
        person=asking.person,
        round=int(asking.round) if asking.round else None,
        state=member("state", asking.state, states) if asking.state else None,
        sort=member("sort", asking.sort or SortBy.ORDER, tuple(SortBy)),
    )


Filters = Annotated[ItemQuery, Depends(filters)]
FILTER_NAMES = tuple(field.name for field in fields(QueryForm))
Lines = Annotated[int, Query(ge=1, le=items.MOST_LINES, description="The most items to return.")]


def shown(campaign: str, line: ItemLine) -> ItemLine:
    """A line with the address of its image on this server, as a small one."""
    if line.image is None or line.split is SplitName.TEST:
        return replace(line, image=None)
    return replace(line, image=f"{image_address(campaign, line.item)}?small=true")


def shown_detail(campaign: str, found: ItemDetail) -> ItemDetail:
    """The same of everything about an item."""
    content = replace(found.content, image=None, images=()) if found.line.split is SplitName.TEST else found.content
    return replace(found, line=shown(campaign, found.line), content=with_address(campaign, found.line.item, content))


@routes.get("/items", _FILTER)
def list_items(
    _: Lead, campaign: CampaignPath, ws: Store, query: Filters, after: Cursor = None, limit: Lines = 50
) -> ItemsPage:
    """The items that match all filters, a page at a time."""
    found = items.page(ws, campaign, query, after=after, limit=limit)
    return replace(found, entries=tuple(shown(campaign, line) for line in found.entries))


@routes.get("/map")
def item_map(_: Lead, campaign: CampaignPath, ws: Store) -> ItemMap:
    """A sample of the items in two dimensions, as the chart of the progress shows it."""
    rows = map2d(ws, campaign)[["x", "y", "what", "split", "item"]].itertuples(index=False)
    return ItemMap(
        tuple(MapPoint(round(x, 2), round(y, 2), what, SplitName(split), item) for x, y, what, split, item in rows)
    )


@routes.get("/items/{item:path}/detail", ITEM)
def item_detail(
    _: Lead,
    campaign: CampaignPath,
    item: ItemPath,
    ws: Store,
    split: Annotated[SplitName, Query()] = SplitName.TRAIN,
) -> ItemDetail:
    """Everything that is known of an item."""
    return shown_detail(campaign, items.detail(ws, campaign, item, split))


@routes.get("/items/{item:path}/similar", ITEM)
def similar_items(
    _: Lead,
    campaign: CampaignPath,
    item: ItemPath,
    ws: Store,
    n: Annotated[int, Query(ge=1, le=similar.MOST, description="The most items to return.")] = 8,
) -> SimilarItems:
    """The training items that are most like a training item, by their features."""
    found = similar.similar(ws, campaign, item, n)
    return replace(found, items=tuple(replace(one, line=shown(campaign, one.line)) for one in found.items))


@routes.post(
    "/items/actions",
    _FILTER,
    (422, "items", "no items, or more than one action takes"),
    (422, "label", "no such class"),
    (409, "changed", "items were decided since; `now` has their labels"),
    (409, "count", "another number of items matches than was told"),
    (409, "request_id", "the id was used for another action"),
)
def act(campaign: CampaignPath, form: ActionForm, who: Lead, ws: Store) -> ActionDone:
    """Decide items, take decisions back, or have items asked first: those named, or all that match. Each item's fate is told."""
    query = None if form.query is None else filters(campaign, ws, form.query)
    wanted = actions.Wanted(form.action, form.label, form.items, query, form.count, form.seen)
    return actions.act(ws, campaign, wanted, who.name, form.request_id)
