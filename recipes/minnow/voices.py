"""The built-in voices: which of the teacher's voices they come from, and how they are chosen.

    python -m recipes.minnow.voices audition --work DIR [--only af_bella,af_bella:0.6+af_nova:0.4]
    python -m recipes.minnow.voices write --work DIR --model FOLDER
    python -m recipes.minnow.voices keep --of FOLDER --model FOLDER
    python -m recipes.minnow.voices audition --work DIR --only ada,nora > FILE
    python -m recipes.minnow.voices page --figures FILE

``audition`` lets a model speak in the voice of every candidate, or in its own, and has the
judges hear it: its lines are not those of the evaluation. ``write`` makes the voice files of a
model's folder: each is a short reference clip that the teacher speaks, as codes with its words.
``keep`` takes over the voices of another folder whose codec differs in its decoder only.
``page`` writes ``docs/voices.md`` with a sample of each. ``DIR`` is what ``judges.py`` made.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from fishtts.cloning.voice_file import read_voice, write_voice
from fishtts.codec import Codec, load_codec
from fishtts.types import Reference, Voice
from recipes.minnow.score import Judges, compare, word_error_rate
from recipes.minnow.synthesise import HELD_OUT_VOICES
from recipes.minnow.teacher_onnx import Teacher

REFERENCES = (
    "The morning was quiet, and a thin mist lay over the fields beyond the old stone bridge.",
    "I came home late, hung up my coat, and sat for a while by the window with a cup of tea.",
    "Would you like to hear the rest? We have time, and the story is better than you think!",
)
"""What a voice's clip may say."""

LINES = (
    "The lamp on the landing has been flickering since Sunday.",
    "Who told you that the meeting was cancelled?",
    "Thanks, but I have already eaten.",
    "Nobody in the village remembered how the quarrel had begun.",
    "What a ridiculous hat!",
    "The driver gives no change, so bring the exact fare.",
    "She measured the shelf twice, wrote the figure on her palm, and drove back to the shop.",
    "Yes, of course.",
    "Jonathan promised to water the ferns while Amelia is away.",
    "It was only when the music stopped that we heard the rain on the roof.",
    "Please bring a jacket, because the evenings are cold up here.",
    "Seventeen of the thirty two boats came back before dark.",
)
"""What a candidate says; none of it is in the evaluation's lists."""


SAMPLE = "Good morning. The kettle is on, and nothing at all needs to be done today."
PAGE = Path(__file__).parents[2] / "docs" / "voices.md"
PAGE_TEXT = """# The voices of minnow

Every sample says: "{sample}"

| voice | what it is like | made from the teacher's | WER | DistillMOS mean | worst line |
| --- | --- | --- | ---: | ---: | ---: |
{rows}

```
fishtts voices list
fishtts voices play nora             # the clip that the voice is made from
fishtts say "Good morning." -v nora
```

Each voice is a clip of five or six seconds spoken by the teacher (Kokoro-82M) in one of its stock
voices or a mixture of them, stored as codes with its words: about two kilobytes. No person was
recorded. The figures are of {lines} lines that are in no other list (one seed; Whisper base,
DistillMOS); both judges are explained in [quality.md](quality.md). What a voice is like was written
down from its measured pitch, brightness and pace: nobody listened.

Written by `python -m recipes.minnow.voices page`.
"""


@dataclass(frozen=True, slots=True)
class Casting:
    """Where a built-in voice comes from. ``teacher`` is a stock voice or a mixture of some."""

    teacher: str
    reference: int
    description: str


VOICES = {
    "ada": Casting("af_heart", 0, "American woman, warm"),
    "nora": Casting("af_river", 0, "American woman, clear"),
    "iris": Casting("af_nova", 0, "American woman, low"),
    "tessa": Casting("af_alloy", 0, "American woman, soft"),
    "miles": Casting("am_michael", 0, "American man, calm"),
    "finn": Casting("am_fenrir", 0, "American man, deep"),
    "owen": Casting("am_liam", 0, "American man, brisk"),
    "clara": Casting("bf_emma", 0, "British woman, clear"),
    "edward": Casting("bm_george", 0, "British man, measured"),
    "hugh": Casting("bm_george:0.5+bm_daniel:0.5", 1, "British man, level"),
}


def cast(name: str, casting: Casting, teacher: Teacher, codec: Codec) -> Voice:
    """Make one voice."""
    words = REFERENCES[casting.reference]
    samples = torch.from_numpy(teacher.speak(words, casting.teacher))
    codes = codec.encode(samples).cpu().numpy()
    return Voice(name, (Reference(codes, words),), codec.identity, "en", casting.description)


def write_voices(folder: Path, teacher: Teacher, only: Collection[str] = ()) -> None:
    """Write the built-in voices of a model's folder, or some of them, and take away those that are
    no more."""
    codec = load_codec(folder)
    voices = folder / "voices"
    voices.mkdir(exist_ok=True)
    for path in voices.glob("*.safetensors"):
        if path.stem not in VOICES:
            path.unlink()
    for name in only or VOICES:
        casting = VOICES[name]
        write_voice(cast(name, casting, teacher, codec), voices / f"{name}.safetensors")


def keep_voices(source: Path, folder: Path) -> None:
    """Write the voices of another model's folder into one whose codec makes the same codes.

    Raises: ``SystemExit`` where encoder or quantiser differ: the codes would mean something else.
    """
    old, new = (_makes_codes(load_file(f / "codec.safetensors")) for f in (source, folder))
    if old.keys() != new.keys() or not all(torch.equal(old[name], new[name]) for name in old):
        raise SystemExit(f"The codecs of {source} and {folder} do not make the same codes.")
    identity = load_codec(folder).identity
    (folder / "voices").mkdir(exist_ok=True)
    for name in VOICES:
        voice = read_voice(source / "voices" / f"{name}.safetensors")
        write_voice(replace(voice, codec=identity), folder / "voices" / f"{name}.safetensors")


def _makes_codes(codec: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: t for name, t in codec.items() if not name.startswith("decoder.")}


def candidates(teacher: Teacher) -> Iterable[str]:
    """The teacher's English voices but for those that are held out."""
    return (n for n in teacher.voices if n[0] in "ab" and n not in HELD_OUT_VOICES)


def audition(args: argparse.Namespace) -> None:
    """Print one JSON line a candidate: words misheard, opinion scores, share of bad lines."""
    from fishtts import TTS

    teacher = Teacher(args.work / "teacher", threads=1)
    judges = Judges(args.work, threads=1)
    tts = TTS(model=args.model, device="cpu", offline=True)
    for name in args.only.split(",") if args.only else candidates(teacher):
        for reference in map(int, args.references.split(",")):
            is_cast = name in VOICES
            voice = tts.voice(name) if is_cast else cast(
                name, Casting(name, reference, ""), teacher, tts.codec
            )  # fmt: skip
            errors, scores, tries = [], [], 0
            for text in LINES[: args.limit]:
                speech = tts.say(text, voice=voice, seed=args.seed)
                tries += sum(unit.tries for unit in speech.report.units)
                verdict = judges.hear(speech.samples, speech.sample_rate)
                errors.append(compare(text, verdict.heard))
                scores.append(verdict.mos)
            row = {
                "voice": name,
                "reference": reference,
                "wer": round(word_error_rate(errors), 4),
                "mos": round(float(np.mean(scores)), 3),
                "worst": round(min(scores), 3),
                "tries": tries,
                "lines": len(scores),
            }
            print(json.dumps(row), flush=True)


def write_page(figures: Path, model: str) -> None:
    """Write a sample of every voice, and the page that tells them apart."""
    from fishtts import TTS

    tts = TTS(model=model, device="cpu", offline=True)
    folder = PAGE.parent / "voices"
    folder.mkdir(exist_ok=True)
    found = {row["voice"]: row for row in map(json.loads, figures.read_text().splitlines())}
    rows = []
    for name, casting in VOICES.items():
        tts.say(SAMPLE, voice=name).save(folder / f"{name}.mp3", force=True)
        row = found[name]
        cells = (f"[{name}](voices/{name}.mp3)", casting.description, casting.teacher,
                 f"{row['wer']:.3f}", f"{row['mos']:.2f}", f"{row['worst']:.2f}")  # fmt: skip
        rows.append("| " + " | ".join(cells) + " |")
    PAGE.write_text(
        PAGE_TEXT.format(sample=SAMPLE, rows="\n".join(rows), lines=found["ada"]["lines"])
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("audition", "write", "keep", "page"))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--figures", type=Path, help="what audition said of the built-in voices")
    parser.add_argument("--model", default="minnow", help="a built-in model or a folder")
    parser.add_argument("--of", type=Path, help="the folder whose voices are kept")
    parser.add_argument("--only", default="", help="candidates or names, with commas between")
    parser.add_argument("--references", default="0", help="which clips, with commas between")
    parser.add_argument("--limit", type=int, default=None, help="only so many lines")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.command == "page":
        write_page(args.figures, args.model)
    elif args.command == "audition":
        audition(args)
    elif args.command == "keep":
        keep_voices(args.of, Path(args.model))
    else:
        only = [name for name in args.only.split(",") if name]
        write_voices(Path(args.model), Teacher(args.work / "teacher"), only)


if __name__ == "__main__":
    main()
