"""The report of a campaign, from its ledger: nothing is computed again."""

from labelchef.campaign.report import Items, Outcome, report_data
from labelchef.services.folders import require_folder
from labelchef.services.progress import gains_of
from labelchef.services.trained import ledger_of, require_model
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, item_table, round_table
from labelchef.store.arrays import read_array


def report(ws: Workspace, campaign: str) -> str:
    """The HTML report of a campaign as it stands."""
    from labelchef.report import render_report, require_report

    require_report()
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        require_model(connection, row)
        classes = campaign_table.classes_of(connection, row.id)
        keys = item_table.train_keys(connection, row.id)
        arrays = campaign_table.arrays_of(connection, row.id)
        closed = [one for one in round_table.rounds_of(connection, row.id) if not one.is_open]
    folder = require_folder(ws, row)
    gains = {split: found[row.settings.target_metric] for split, found in gains_of(closed[-1].outcome).items()}
    outcome = Outcome(
        title=f"labelchef: {row.name}",
        message=f"{row.state.capitalize()}: {row.message}.",
        rounds=ledger_of(ws, row).rounds(),
        settings=row.settings,
        scores=read_array(folder, arrays["scores"]),
        gains=gains,
    )
    return render_report(report_data(outcome, Items(keys, classes, read_array(folder, arrays["weak"]))))
