"""How much a clone sounds like the speaker, by a judge that nothing was trained or chosen with.

    python -m recipes.cloning.recordings --work DIR
    python -m recipes.minnow.judges --work DIR          # the teacher, for synthetic speakers
    python -m recipes.cloning.similarity --work DIR [--model FOLDER] [--write]

Ten people in six languages and eight synthetic speakers that no training saw. Of each, one
recording is cloned with the product's own ``prepare``; the clone says sentences of our own, and
the judge compares them with the recording. Beside it stand

- **codec**: the recording itself, encoded and decoded: what the codec lets through at best
- **self**: another recording of the same speaker, where there is one
- **others**: the recordings of the other speakers, mean
- **built-in**: the model's default voice, saying the same sentences

Owns the run and its table in ``docs/quality.md``, between marks of its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from fishtts import TTS
from fishtts.audio.read import read_audio
from fishtts.cloning.prepare import prepare
from fishtts.cloning.reference_audio import encode_reference
from fishtts.types import Audio, Voice
from recipes.cloning.judge import LINE, Judge
from recipes.minnow.records import environment
from recipes.minnow.synthesise import HELD_OUT_VOICES
from recipes.minnow.teacher_onnx import MAX_TOKENS, SAMPLE_RATE, Teacher

PAGE = Path(__file__).parents[2] / "docs" / "quality.md"
BEGIN, END = "<!-- cloning: begin -->", "<!-- cloning: end -->"

PEOPLE = (
    "en_librivox", "es_allison", "fr_prompts", "it_prompts", "ru_festvox", "ru_prompts",
    "de_OldZach", "de_Sonja", "de_Martin_Harbecke", "en_linda_johnson",
)  # fmt: skip
MIXTURES = (
    ("af_sky", "bf_lily"), ("am_puck", "bm_fable"), ("af_sky", "am_puck"), ("bf_lily", "bm_fable"),
)  # fmt: skip
"""Half of each of two held-out voices: speakers that nobody recorded."""

SENTENCES = (
    "The parcel you were waiting for has come, and it is standing in the hall.",
    "We could take the early train tomorrow, if nobody minds getting up at six.",
)
REFERENCE = (
    "Long before the road was built, people went over the pass on foot, with all that they owned"
    " on their backs.",
    "In a dry summer you can still see where the path ran, a pale line in the grass.",
)
OTHER_WORDS = (
    "Nobody had told the gardener that the gate would be locked until the end of the week."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One speaker's figures: cosines to the recording that was cloned. nan where there is none."""

    speaker: str
    is_human: bool
    seconds: float
    clone: float
    codec: float
    self_: float
    others: float
    builtin: float


@dataclass(frozen=True, slots=True)
class Speaker:
    """A recording to clone, and another one of the same speaker where there is one."""

    name: str
    is_human: bool
    recording: Path
    other: Audio | None


def people(folder: Path) -> list[Speaker]:
    """Choose recordings of people: the longest of each, and another to compare."""
    speakers = []
    for name in PEOPLE:
        single = folder / f"{name}.wav"
        files = sorted((folder / name).glob("*.wav"), key=lambda path: path.stat().st_size)
        recording, other = (single, None) if single.exists() else (files[-1], read_audio(files[-2]))
        speakers.append(Speaker(name, True, recording, other))
    return speakers


def synthetic(work: Path, folder: Path) -> list[Speaker]:
    """Let the teacher speak in voices that were kept out of training, and in mixtures of them."""
    voices = work / "teacher" / "voices"
    names = list(HELD_OUT_VOICES)
    for one, other in MIXTURES:
        tables = [np.fromfile(voices / f"{name}.bin", "<f4") for name in (one, other)]
        names.append(f"{one}_{other.split('_')[1]}")
        assert tables[0].size == MAX_TOKENS * 256
        (voices / f"{names[-1]}.bin").write_bytes(np.mean(tables, axis=0).astype("<f4").tobytes())
    teacher = Teacher(work / "teacher", threads=1)
    speakers = []
    for name in names:
        path = folder / f"{name}.wav"
        soundfile.write(
            path, np.concatenate([teacher.speak(text, name) for text in REFERENCE]), SAMPLE_RATE
        )
        other = Audio(teacher.speak(OTHER_WORDS, name), SAMPLE_RATE)
        speakers.append(Speaker(name, False, path, other))
    return speakers


def measure(speakers: list[Speaker], tts: TTS, judge: Judge) -> list[Row]:
    """Clone every speaker, and let the judge compare."""
    import torch

    def embed(audio: Audio) -> npt.NDArray[np.float32]:
        return judge.embed(audio.samples, audio.sample_rate)

    def said(voice: Voice | None) -> list[npt.NDArray[np.float32]]:
        spoken = [tts.say(text, voice=voice, seed=0) for text in SENTENCES]
        return [embed(Audio(speech.samples, speech.sample_rate)) for speech in spoken]

    builtin = said(None)
    max_s = tts.card.reference_s
    clips = {speaker.name: prepare(speaker.recording, max_s=max_s).clips[0] for speaker in speakers}
    references = {name: embed(clip) for name, clip in clips.items()}
    rows = []
    for speaker in speakers:
        reference, clip = references[speaker.name], clips[speaker.name]
        encoded = encode_reference(clip, tts.codec)
        with torch.inference_mode():
            decoded = tts.codec.decode(torch.from_numpy(encoded.codes)).float().cpu().numpy()
        voice = Voice(speaker.name, (encoded,), codec=tts.codec.identity)
        others = [references[name] @ reference for name in references if name != speaker.name]
        rows.append(
            Row(
                speaker=speaker.name,
                is_human=speaker.is_human,
                seconds=round(clip.seconds, 1),
                clone=float(np.mean([found @ reference for found in said(voice)])),
                codec=float(embed(Audio(decoded, tts.sample_rate)) @ reference),
                self_=float(embed(speaker.other) @ reference) if speaker.other else float("nan"),
                others=float(np.mean(others)),
                builtin=float(np.mean([found @ reference for found in builtin])),
            )
        )
        print(rows[-1], flush=True)
    return rows


def as_markdown(rows: list[Row], model: str) -> str:
    """Lay the table out, people first, each group with its mean."""
    names = ("clone", "codec", "self_", "others", "builtin")
    lines = [
        "### How much a clone sounds like the speaker",
        "",
        "Cosine to the recording that was cloned, by a speaker encoder that took no part in",
        "training, conditioning or search; one person's recordings lie at about",
        f"{LINE:.2f} and above. `codec` is the recording encoded and decoded (the ceiling), `self`",
        "another recording of the speaker, `others` the mean of the other speakers (the floor),",
        "`built-in` the default voice without cloning.",
        f"Model {model}; {len(SENTENCES)} sentences a clone, seed 0.",
        "",
        "| Speaker | Seconds | Clone | Codec | Self | Others | Built-in |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    counts = []
    for is_human, title in ((True, "people"), (False, "synthetic speakers")):
        group = [row for row in rows if row.is_human == is_human]
        for row in group:
            cells = [_cell(getattr(row, name)) for name in names]
            lines.append(f"| {row.speaker} | {row.seconds:.1f} | {' | '.join(cells)} |")
        means = [_cell(float(np.nanmean([getattr(row, name) for row in group]))) for name in names]
        lines.append(f"| **{title}, mean** | | {' | '.join(f'**{mean}**' for mean in means)} |")
        accepted = sum(row.clone >= LINE for row in group)
        nearer = sum(row.clone > row.builtin for row in group)
        counts.append(
            f"{title.capitalize()}: {accepted} of {len(group)} clones at {LINE:.2f} or above;"
            f" {nearer} nearer to the speaker than the built-in voice is."
        )
    lines += ["", *counts]
    about = environment(1)
    lines += ["", ", ".join(f"{key} {value}" for key, value in about.items()) + "."]
    return "\n".join(lines)


def _cell(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"


def write_between(begin: str, end: str, text: str, page: Path = PAGE) -> None:
    """Put a text into the page between two marks, which are added where there are none."""
    content = page.read_text("utf-8")
    if begin not in content:
        content = f"{content.rstrip()}\n\n{begin}\n{end}\n"
    before, rest = content.split(begin, 1)
    after = rest.split(end, 1)[1]
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", default="minnow", help="a built-in model or a folder")
    parser.add_argument("--write", action="store_true", help="write the table of docs/quality.md")
    args = parser.parse_args()
    tts = TTS(args.model, device="cpu", offline=True)
    with tempfile.TemporaryDirectory() as folder:
        speakers = [*people(args.work / "recordings"), *synthetic(args.work, Path(folder))]
        rows = measure(speakers, tts, Judge(args.work))
    text = as_markdown(rows, tts.card.name)
    print(text)
    if args.write:
        write_between(BEGIN, END, text)
    print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
