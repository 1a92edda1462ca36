"""Files as people have them: texts with ids, votes of sources in another order, a few trusted labels; images; a table."""

import io
import random
import zipfile
from pathlib import Path

from PIL import Image

GOOD = ("lovely", "great", "thanks", "happy", "smooth", "friendly")
BAD = ("delayed", "lost", "rude", "awful", "cancelled", "waiting")
PLAIN = "the flight to {} on {} with my {} was {} and the crew was {}"
PLACES = ("Oslo", "Lima", "Cairo", "Perth", "Quito")
DAYS = ("Monday", "Friday", "Sunday")
THINGS = ("bag", "family", "team", "dog")


def tweets(n: int = 120, *, seed: int = 0) -> list[tuple[str, str, str]]:
    """(id, text, true label) of n texts; ids have leading zeros."""
    rng = random.Random(seed)
    found = []
    for k in range(n):
        label = rng.choice(("good", "bad"))
        words = GOOD if label == "good" else BAD
        text = PLAIN.format(
            rng.choice(PLACES), rng.choice(DAYS), rng.choice(THINGS), rng.choice(words), rng.choice(words)
        )
        found.append((f"{k:04d}", f"Tweet {k}: {text} #{k}", label))
    return found


def tweet_files(n: int = 120, trusted: int = 30, *, text: str = "text") -> dict[str, bytes]:
    """tweets.csv, votes.csv (long, shuffled, 80 % right), gold.csv (ids and labels)."""
    rng, rows = random.Random(1), tweets(n)
    items = [f"id,{text}", *(f'{key},"{said}"' for key, said, _ in rows)]
    votes = []
    for key, _, label in rows:
        for source in ("ann", "bert", "rule7"):
            other = "good" if label == "bad" else "bad"
            votes.append(f"{key},{source},{label if rng.random() < 0.8 else other}")
    rng.shuffle(votes)
    gold = [f"{key},{label}" for key, _, label in rng.sample(rows, trusted)]
    return {
        "tweets.csv": "\n".join(items).encode(),
        "votes.csv": "\n".join(["item,source,label", *votes]).encode(),
        "gold.csv": "\n".join(["id,label", *gold]).encode(),
    }


def image_files(n: int = 40, trusted: int = 12, *, captions: bool = False) -> dict[str, bytes]:
    """photos.csv (id, image, with `captions` text), gold.csv, votes.csv (wide), and images/*.png: dark ones and light ones."""
    rng = random.Random(2)
    labels = [rng.choice(("dark", "light")) for _ in range(n)]
    files = {}
    for k, label in enumerate(labels):
        shade = rng.randint(10, 90) if label == "dark" else rng.randint(160, 245)
        content = io.BytesIO()
        Image.new("RGB", (24, 24), (shade, shade, rng.randint(0, 255))).save(content, "PNG")
        files[f"images/p{k}.png"] = content.getvalue()
    guess = [label if rng.random() < 0.8 else "dark" for label in labels]
    said = [f",a picture that {rng.choice(('ann', 'bob'))} took of number {k}" if captions else "" for k in range(n)]
    head = "id,image,text" if captions else "id,image"
    files["photos.csv"] = "\n".join([head, *(f"k{k},p{k}.png{said[k]}" for k in range(n))]).encode()
    files["votes.csv"] = "\n".join(["id,lf_1", *(f"k{k},{guess[k]}" for k in range(n))]).encode()
    chosen = rng.sample(range(n), trusted)
    files["gold.csv"] = "\n".join(["id,label", *(f"k{k},{labels[k]}" for k in chosen)]).encode()
    return files


def zipped(files: dict[str, bytes]) -> bytes:
    """A zip archive of files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return content.getvalue()


def stored(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """The files on the disk."""
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return [folder / name for name in files]
