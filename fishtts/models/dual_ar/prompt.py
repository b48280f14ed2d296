"""Words and references to the matrix of rows that the model continues.

Owns the prompt's format, the tokenizer, and who speaks in which turn. Knows no tensors and no
sampling. Whatever a person writes stays text: only the phrases written here become control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from fishtts.errors import ModelError
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.types import Codes, Prompt, Reference

Rows = npt.NDArray[np.int64]

_SYSTEM = "<|im_start|>system\n"
_USER = "<|im_start|>user\n"
_ASSISTANT = "<|im_start|>assistant\n<|voice|>"
_END = "<|im_end|>\n"
_TASK = "convert the provided text to speech"
_TASK_WITH_VOICE = f"{_TASK} reference to the following:\n\nText:\n"
_SPEECH = "\n\nSpeech:\n"
_CONTROL = ("<|im_start|>", "<|im_end|>", "<|voice|>")

_SPEAKER = re.compile(r"(<\|speaker:\d+\|>)")
MAX_TURNS = 5
"""Speaker turns that one request may hold."""


class PromptBuilder:
    """Builds the prompts of one model."""

    def __init__(self, tokenizer: Tokenizer, config: DualARConfig) -> None:
        added = {entry.content: at for at, entry in tokenizer.get_added_tokens_decoder().items()}
        _check_ids(tokenizer, config)
        self._config = config
        self._fixed = tokenizer
        self._plain = _without_added_tokens(tokenizer)
        semantic = range(config.semantic_begin, config.semantic_end + 1)
        self._control = frozenset(added.values()).union(semantic)
        # Names of speakers are text to S2; a model that has tokens for them is given those.
        self._speakers = {text: at for text, at in added.items() if _SPEAKER.fullmatch(text)}

    @classmethod
    def load(cls, path: Path, config: DualARConfig) -> PromptBuilder:
        """Read ``tokenizer.json``.

        Raises: ``ModelError`` for a file that is missing or damaged, or belongs to another model.
        """
        if not path.is_file():
            raise ModelError(f"{path} is missing.", hint="Download or copy the model again.")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"{path} cannot be used: {error}.") from None
        return cls(tokenizer, config)

    def build(self, text: str, references: Sequence[Reference] = ()) -> Prompt:
        """Ask for ``text`` in the voice of the references."""
        return self.build_turns(text, references, ())

    def build_turns(
        self, text: str, references: Sequence[Reference], earlier: Sequence[Reference]
    ) -> Prompt:
        """Ask for ``text`` after ``earlier`` texts and what was generated for them."""
        head = [*self._system(references), self._phrase(_USER)]
        rest: list[Rows] = []
        for turn in earlier:
            rest += [self._words(turn.text), self._phrase(_END), self._phrase(_ASSISTANT)]
            rest += [self._audio([turn.codes]), self._phrase(_END), self._phrase(_USER)]
        rest += [self._words(text), self._phrase(_END), self._phrase(_ASSISTANT)]
        matrix = np.concatenate(head + rest, axis=1)
        return Prompt(matrix, num_shared=sum(piece.shape[1] for piece in head))

    def _system(self, references: Sequence[Reference]) -> Iterator[Rows]:
        yield self._phrase(_SYSTEM)
        if references:
            yield self._phrase(_TASK_WITH_VOICE)
            yield self._words("\n".join(_tagged(i, ref.text) for i, ref in enumerate(references)))
            yield self._phrase(_SPEECH)
            yield self._audio([reference.codes for reference in references])
        else:
            yield self._phrase(_TASK)
        yield self._phrase(_END)

    def _phrase(self, text: str) -> Rows:
        """Rows of a phrase of ours, in which control tokens count."""
        return self._rows(self._fixed.encode(text, add_special_tokens=False).ids)

    def _words(self, text: str) -> Rows:
        """Rows of a person's words, in which nothing is a control token."""
        ids: list[int] = []
        for part in _SPEAKER.split(text) if self._speakers else [text]:
            if part in self._speakers:
                ids.append(self._speakers[part])
                continue
            plain = self._plain.encode(part, add_special_tokens=False).ids
            if not self._control.isdisjoint(plain):
                raise ModelError("The model's tokenizer makes control tokens of plain text.")
            ids += plain
        return self._rows(ids)

    def _audio(self, codes: Sequence[Codes]) -> Rows:
        """Rows of speech: the semantic token of each frame, and all its codes."""
        config = self._config
        for each in codes:
            if each.ndim != 2 or each.shape[0] != config.num_codebooks:
                raise ModelError(
                    f"The reference has codes of the shape {list(each.shape)}; this model has"
                    f" {config.num_codebooks} codebooks."
                )
            if each.size and not 0 <= each.min() <= each.max() < config.codebook_size:
                raise ModelError(
                    f"The reference has codes from {each.min()} to {each.max()}; this model's go"
                    f" from 0 to {config.codebook_size - 1}."
                )
        joined = np.concatenate(codes, axis=1).astype(np.int64)
        return np.concatenate((joined[:1] + config.semantic_begin, joined))

    def _rows(self, ids: Sequence[int]) -> Rows:
        rows = np.zeros((1 + self._config.num_codebooks, len(ids)), np.int64)
        rows[0] = ids
        return rows


def split_turns(text: str) -> list[str]:
    """Split a text where a speaker begins (``<|speaker:3|>``), each with its own tag.

    What comes before the first tag is a turn of its own, a narrator's. Without tags the whole text
    is one turn.
    """
    lead, *tagged = _SPEAKER.split(text)
    if not tagged:
        return [text]
    turns = [tag + words for tag, words in zip(tagged[::2], tagged[1::2], strict=True)]
    return [turn.strip() for turn in (lead, *turns) if turn.strip()]


def group_turns(turns: Sequence[str], max_bytes: int) -> list[str]:
    """Join turns to the texts of requests: up to five, of up to ``max_bytes`` together.

    The newlines between them do not count; a longer turn stays whole, and alone.
    """
    groups: list[list[str]] = []
    size = 0
    for turn in turns:
        length = len(turn.encode())
        if not groups or len(groups[-1]) == MAX_TURNS or size + length > max_bytes:
            groups.append([])
            size = 0
        groups[-1].append(turn)
        size += length
    return ["\n".join(group) for group in groups]


def _tagged(index: int, text: str) -> str:
    return text if _SPEAKER.search(text) else f"<|speaker:{index}|>{text}"


def _without_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """The same vocabulary and rules, but no string stands for more than its characters."""
    plain = Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        plain.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        plain.pre_tokenizer = tokenizer.pre_tokenizer
    return plain


def _check_ids(tokenizer: Tokenizer, config: DualARConfig) -> None:
    """Check that the tokenizer and the config speak of the same tokens."""
    for token in _CONTROL:
        if tokenizer.token_to_id(token) is None:
            raise ModelError(f'The tokenizer lacks the token "{token}".')
    end_id = tokenizer.token_to_id("<|im_end|>")
    if end_id != config.end_id:
        raise ModelError(
            f'The tokenizer has "<|im_end|>" at {end_id}, and config.json at {config.end_id}.'
        )
    for code in range(config.codebook_size):
        found = tokenizer.token_to_id(f"<|semantic:{code}|>")
        if found != config.semantic_begin + code:
            place = "nowhere" if found is None else f"at {found}"
            raise ModelError(
                f'The tokenizer has "<|semantic:{code}|>" {place}; config.json has the semantic ids'
                f" from {config.semantic_begin} to {config.semantic_end} without gaps.",
                hint="tokenizer.json and config.json must be from the same model.",
            )
    if tokenizer.token_to_id(f"<|semantic:{config.codebook_size}|>") is not None:
        raise ModelError(
            f"The tokenizer has more semantic tokens than the model's {config.codebook_size} codes."
        )
