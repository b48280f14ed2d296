"""What ``fishtts verify`` lets a model say.

Owns the texts. They were committed before anything was measured with them and are not to be chosen
by what a format does to them: add to them, but take none away. Knows no model.
"""

from __future__ import annotations

PROMPTS = (
    "Good morning.",
    "The ferry left the harbour before the fog had lifted.",
    "Is there any more soup, or did you finish it?",
    "She counted to seventeen, twice, and closed the door.",
    "No.",
    "A narrow path winds along the river, past the mill and the old stone bridge.",
    "Please read the third paragraph again, slowly.",
    "They had never seen so much snow in April!",
    "The committee will publish its decision on Thursday afternoon.",
    "Bright yellow lanterns swung above the market while the musicians tuned their instruments.",
    "He said that it was late; it was, in fact, early.",
    "Water boils at one hundred degrees, unless you are on a mountain.",
)
"""English, of one word to a long sentence: statements, questions, commands, exclamations."""

NUM_FRAMES = 5
"""Frames of greedy decoding that must be equal."""
