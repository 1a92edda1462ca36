"""Hidden gold and its answers, and which items a member gets. The triggers are made again after every migration."""

import sqlalchemy as sa
from alembic import op

revision = "0302_people"
down_revision = "0301_labelling"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ANSWERS = "gold_answer"


def upgrade() -> None:
    """Campaigns of before have none."""
    op.create_table(
        "gold",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("campaign_id", _NUMBER, sa.ForeignKey("campaign.id", name="fk_gold_campaign_id"), nullable=False),
        sa.Column("round_id", _NUMBER, sa.ForeignKey("round.id", name="fk_gold_round_id"), nullable=False),
        sa.Column("item_id", _NUMBER, sa.ForeignKey("item.id", name="fk_gold_item_id"), nullable=False),
        sa.Column("cover", _NUMBER, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("rank", _NUMBER, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.UniqueConstraint("campaign_id", "person", "item_id", name="uq_gold_campaign_id_person_item_id"),
        sa.UniqueConstraint("round_id", "person", "rank", name="uq_gold_round_id_person_rank"),
    )
    op.create_table(
        _ANSWERS,
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("public_id", sa.Text, nullable=False),
        sa.Column(
            "campaign_id", _NUMBER, sa.ForeignKey("campaign.id", name="fk_gold_answer_campaign_id"), nullable=False
        ),
        sa.Column("gold_id", _NUMBER, sa.ForeignKey("gold.id", name="fk_gold_answer_gold_id"), nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("account_id", _NUMBER, sa.ForeignKey("account.id", name="fk_gold_answer_account_id"), nullable=True),
        sa.Column("seq", _NUMBER, nullable=False),
        sa.Column("label", _NUMBER, nullable=True),
        sa.Column("retracted", sa.Boolean, nullable=False),
        sa.Column(
            "supersedes", _NUMBER, sa.ForeignKey("gold_answer.id", name="fk_gold_answer_supersedes"), nullable=True
        ),
        sa.Column("note", sa.Text, nullable=True),
        sa.Column("seconds", sa.Double, nullable=True),
        sa.Column("request_id", sa.Text, nullable=True),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.UniqueConstraint("public_id", name="uq_gold_answer_public_id"),
        sa.UniqueConstraint("gold_id", "seq", name="uq_gold_answer_gold_id_seq"),
        sa.UniqueConstraint("campaign_id", "person", "request_id", name="uq_gold_answer_campaign_id_person_request_id"),
    )
    op.create_index("ix_gold_answer_campaign_id_id", _ANSWERS, ["campaign_id", "id"])
    op.create_table(
        "duty",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("campaign_id", _NUMBER, sa.ForeignKey("campaign.id", name="fk_duty_campaign_id"), nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("rule", sa.JSON(none_as_null=True), nullable=False),
        sa.UniqueConstraint("campaign_id", "person", name="uq_duty_campaign_id_person"),
    )
