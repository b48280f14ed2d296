"""The built-in voices: which of the teacher's voices they come from, and how they are chosen.

    python -m recipes.minnow.voices audition --work DIR [--only af_bella,af_bella:0.6+af_nova:0.4]
    python -m recipes.minnow.voices write --work DIR --model FOLDER

``audition`` lets a model speak in the voice of every candidate and has the judges hear it: its
lines are not those of the evaluation. ``write`` makes the voice files of a model folder: each is a
short reference clip that the teacher speaks, as codes with its words. ``DIR`` is what ``judges.py``
made.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fishtts.cloning.voice_file import write_voice
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


@dataclass(frozen=True, slots=True)
class Casting:
    """Where a built-in voice comes from. ``teacher`` is a stock voice or a mixture of some."""

    teacher: str
    reference: int
    description: str


VOICES = {
    "ada": Casting("af_heart", 0, "American woman, warm"),
    "nora": Casting("af_bella", 0, "American woman, lively"),
    "miles": Casting("am_michael", 0, "American man, calm"),
    "finn": Casting("am_fenrir", 0, "American man, deep"),
    "clara": Casting("bf_emma", 0, "British woman, clear"),
    "edward": Casting("bm_george", 0, "British man, measured"),
}


def cast(name: str, casting: Casting, teacher: Teacher, codec: Codec) -> Voice:
    """Make one voice."""
    words = REFERENCES[casting.reference]
    samples = torch.from_numpy(teacher.speak(words, casting.teacher))
    codes = codec.encode(samples).cpu().numpy()
    return Voice(name, (Reference(codes, words),), codec.identity, "en", casting.description)


def write_voices(folder: Path, teacher: Teacher) -> None:
    """Write the built-in voices of a model's folder, and take away those that are no more."""
    codec = load_codec(folder)
    voices = folder / "voices"
    voices.mkdir(exist_ok=True)
    for path in voices.glob("*.safetensors"):
        if path.stem not in VOICES:
            path.unlink()
    for name, casting in VOICES.items():
        write_voice(cast(name, casting, teacher, codec), voices / f"{name}.safetensors")


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
            voice = cast(name, Casting(name, reference, ""), teacher, tts.codec)
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
            }
            print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("audition", "write"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", default="minnow", help="a built-in model or a folder")
    parser.add_argument("--only", default="", help="candidates, with commas between")
    parser.add_argument("--references", default="0", help="which clips, with commas between")
    parser.add_argument("--limit", type=int, default=None, help="only so many lines")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.command == "audition":
        audition(args)
    else:
        write_voices(Path(args.model), Teacher(args.work / "teacher"))


if __name__ == "__main__":
    main()
