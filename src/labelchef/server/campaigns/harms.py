"""The sources of a campaign that harm beyond doubt, kept in its folder (`harms.json`), so that whoever looks at it is told.

They are looked for once for every choice of the learner, by a session of its own, after people have their batch.
"""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from labelchef.base.files import whole_file
from labelchef.base.learning import Harm
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.loop import rebuild
from labelchef.loop.session import Session
from labelchef.loop.source_report import harms, muting

_FILE = "harms.json"


def keep(folder: Path, session: Session, data: CampaignData, settings: Settings) -> None:
    """Look for them, if the choice or the votes that are heard are others than when that was done last.

    A disk that refuses the file is no reason to stop a campaign.
    """
    learner, last = session.learner, session.rounds[-1]
    if learner is None or last.choice is None or not learner.closed_form:
        return
    key = json.dumps([{**last.choice.as_json(), "seconds": 0.0}, last.heard.as_json()], sort_keys=True)
    if _read(folder)[0] == key:
        return
    found: tuple[Harm, ...] = ()
    if np.nanmin(np.append(muting(session), 0.0)) < 0.0:  # else muting is not predicted to help anywhere
        found = harms(rebuild.rebuild(data, settings, session.rounds[1:], first=session.rounds[0]))
    with contextlib.suppress(OSError), whole_file(folder / _FILE) as stream:
        stream.write(json.dumps({"key": key, "harms": [asdict(one) for one in found]}).encode())


def kept(folder: Path, settings: Settings) -> tuple[Harm, ...]:
    """Those that were found last and are not muted since, the worst first."""
    return tuple(one for one in _read(folder)[1] if one.name not in settings.muted)


def _read(folder: Path) -> tuple[str, tuple[Harm, ...]]:
    try:
        found = json.loads((folder / _FILE).read_text())
        return str(found["key"]), tuple(Harm(**one) for one in found["harms"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", ()
