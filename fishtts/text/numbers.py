"""Numbers as English words: cardinals, years, money, times, dates, units, ranges, fractions.

Every rule is one pattern and one function, tried in the order of ``_RULES``: the special before
the general, so that a date is not read as a fraction. American readings. Knows nothing of letters
or punctuation that stand alone: ``normalise.py`` deals with those.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_MONTH = "|".join(_MONTHS)
_MONTH_ABBREVIATION = re.compile(
    r"\b(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?(?=\s+\d)|"
    r"(?<=\d\s)(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?"
)

_LONGEST_NUMBER = 15
"""More digits than this are read one by one: they are numbers of accounts, not amounts."""

_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "US$": ("dollar", "dollars", "cent", "cents"),
    "USD": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "EUR": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "GBP": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "sen", "sen"),
    "JPY": ("yen", "yen", "sen", "sen"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "INR": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "jeon", "jeon"),
    "₽": ("ruble", "rubles", "kopeck", "kopecks"),
    "CHF": ("franc", "francs", "centime", "centimes"),
}

_SCALES = {
    "k": "thousand",
    "K": "thousand",
    "m": "million",
    "M": "million",
    "bn": "billion",
    "B": "billion",
    "T": "trillion",
}

_UNITS = {
    "km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter", "nm": "nanometer",
    "um": "micrometer", "mi": "mile", "ft": "foot", "yd": "yard",
    "kg": "kilogram", "g": "gram", "mg": "milligram", "lb": "pound", "lbs": "pound", "oz": "ounce",
    "l": "liter", "L": "liter", "ml": "milliliter", "mL": "milliliter", "gal": "gallon",
    "s": "second", "sec": "second", "ms": "millisecond", "min": "minute", "mins": "minute",
    "h": "hour", "hr": "hour", "hrs": "hour",
    "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz",
    "W": "watt", "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "kWh": "kilowatt hour",
    "V": "volt", "mV": "millivolt", "kV": "kilovolt", "dB": "decibel",
    "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte",
    "TB": "terabyte", "kbps": "kilobit per second", "Mbps": "megabit per second",
    "mph": "mile per hour", "kph": "kilometer per hour", "km/h": "kilometer per hour",
    "m/s": "meter per second", "rpm": "revolution per minute", "fps": "frame per second",
    "ha": "hectare", "cal": "calorie", "kcal": "kilocalorie",
    "°C": "degree Celsius", "°F": "degree Fahrenheit", "°K": "degree Kelvin", "°": "degree",
}  # fmt: skip

_UNCHANGED_PLURALS = {"hertz", "kilohertz", "megahertz", "gigahertz"}

_FRACTIONS = {2: ("half", "halves"), 4: ("quarter", "quarters")}

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
_MINUS = r"(?<![\w.,)])-"


def speak_numbers(text: str) -> str:
    """Put words for all digits of a text whose dashes and quotes are plain ASCII already.

    Words stand apart from letters that touched the digits ("3D"); white space is the caller's.
    """
    if not re.search(r"\d", text):
        return text
    text = _MONTH_ABBREVIATION.sub(_full_month, text)
    for pattern, speak in _RULES:
        text = pattern.sub(speak, text)
    return text


@lru_cache(maxsize=8192)
def cardinal(number: str) -> str:
    """Speak a whole number or a decimal, with or without thousands separators."""
    whole, _, decimals = number.replace(",", "").partition(".")
    if not whole:
        words = ""
    elif len(whole) > _LONGEST_NUMBER or (len(whole) > 1 and whole[0] == "0"):
        words = digits(whole)
    else:
        words = _words(int(whole))
    return f"{words} point {digits(decimals)}".strip() if decimals else words


def digits(number: str) -> str:
    """Speak digits one by one."""
    return " ".join(_words(int(digit)) for digit in number if digit.isdigit())


@lru_cache(maxsize=1024)
def ordinal(number: int) -> str:
    """Speak a place in an order: 22 is "twenty-second"."""
    if len(str(number)) > _LONGEST_NUMBER:
        return f"{digits(str(number))}th"
    return _plain(_num2words(number, "ordinal"))


@lru_cache(maxsize=1024)
def year(number: int) -> str:
    """Speak a year: 1905 is "nineteen oh-five", 2005 "two thousand five"."""
    return _plain(_num2words(number, "year"))


@lru_cache(maxsize=8192)
def _words(number: int) -> str:
    return _plain(_num2words(number, "cardinal"))


def _num2words(number: int, to: str) -> str:
    from num2words import num2words

    return str(num2words(number, lang="en", to=to))


def _plain(words: str) -> str:
    """Take out the commas and the British "and"."""
    return words.replace(",", "").replace(" and ", " ")


def _full_month(match: re.Match[str]) -> str:
    short = (match[1] or match[2])[:3]
    return next(month for month in _MONTHS if month.startswith(short))


def _iso_date(match: re.Match[str]) -> str:
    return _date(int(match[1]), int(match[2]), int(match[3])) or match[0]


def _slash_date(match: re.Match[str]) -> str:
    """Month first, as in the United States, unless only the other way makes a date."""
    first, second, in_year = int(match[1]), int(match[2]), int(match[3])
    return _date(in_year, first, second) or _date(in_year, second, first) or match[0]


def _date(in_year: int, month: int, day: int) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return ""
    return f"{_MONTHS[month - 1]} {ordinal(day)}, {year(in_year)}"


def _month_day(match: re.Match[str]) -> str:
    in_year = f", {year(int(match[3]))}" if match[3] else ""
    return f"{match[1]} {ordinal(int(match[2]))}{in_year}"


def _day_month(match: re.Match[str]) -> str:
    in_year = f", {year(int(match[3]))}" if match[3] else ""
    return f"{match[2]} {ordinal(int(match[1]))}{in_year}"


def _time(match: re.Match[str]) -> str:
    hour, minute, second, half = int(match[1]), int(match[2]), match[3], match[4]
    if hour > 24 or minute > 59:
        return match[0]
    if minute:
        words = f"{_words(hour)} {'oh ' if minute < 10 else ''}{_words(minute)}"
    elif half:
        words = _words(hour)
    else:
        words = f"{_words(hour)} o'clock" if 1 <= hour <= 12 else f"{_words(hour)} hundred"
    if second:
        words += f" and {_words(int(second))} second{'' if int(second) == 1 else 's'}"
    return f"{words} {half[0].upper()} M" if half else words


def _hour(match: re.Match[str]) -> str:
    return f"{_words(int(match[1]))} {match[2].upper()} M"


def _money(match: re.Match[str]) -> str:
    minus = bool(match["sign"] or match["minus"])
    return _amount(match["symbol"], match["amount"], match["scale"], minus=minus)


def _money_after(match: re.Match[str]) -> str:
    return _amount(match["symbol"], match["amount"], match["scale"], minus=False)


def _amount(symbol: str, amount: str, scale: str | None, *, minus: bool) -> str:
    one, many, small_one, small_many = _CURRENCIES[symbol]
    start = "minus " if minus else ""
    if scale:
        return f"{start}{cardinal(amount)} {_SCALES.get(scale, scale.lower())} {many}"
    whole, _, decimals = amount.replace(",", "").partition(".")
    if decimals and len(decimals) != 2:
        return f"{start}{cardinal(amount)} {many}"
    parts = []
    if int(whole or 0) or not int(decimals or 0):
        parts.append(f"{cardinal(whole or '0')} {one if whole == '1' else many}")
    if int(decimals or 0):
        small = int(decimals)
        parts.append(f"{_words(small)} {small_one if small == 1 else small_many}")
    return start + " and ".join(parts)


def _money_range(match: re.Match[str]) -> str:
    """The symbol moves to the second amount, which the next rule reads."""
    return f"{cardinal(match[2])} to {match['symbol']}"


def _cents(match: re.Match[str]) -> str:
    return f"{cardinal(match[1])} cent{'' if match[1] == '1' else 's'}"


def _percent(match: re.Match[str]) -> str:
    return f"{cardinal(match[1])} percent"


def _unit(match: re.Match[str]) -> str:
    number, power, name = match[1], match[3], _UNITS[match[2]]
    head, _, tail = name.partition(" per ")
    if number != "1":
        first, _, rest = head.partition(" ")
        if first == "degree":
            head = f"degrees {rest}".strip()
        else:
            head = "feet" if head == "foot" else head if head in _UNCHANGED_PLURALS else f"{head}s"
    power_word = {"2": "square ", "3": "cubic "}.get(power or "", "")
    return f"{cardinal(number)} {power_word}{head}{f' per {tail}' if tail else ''}"


def _power(match: re.Match[str]) -> str:
    return " squared " if match[1] == "2" else " cubed "


def _phone(match: re.Match[str]) -> str:
    return ", ".join(digits(part) for part in re.split(r"\D+", match[0]) if part)


def _range(match: re.Match[str]) -> str:
    """Only the dash becomes a word: the numbers may still be years or have a unit."""
    return f"{match[1]} to "


def _minus(match: re.Match[str]) -> str:
    return "minus "


def _score(match: re.Match[str]) -> str:
    return f"{cardinal(match[1])} to {cardinal(match[2])}"


def _ordinal(match: re.Match[str]) -> str:
    return ordinal(int(match[1].replace(",", "")))


def _decade(match: re.Match[str]) -> str:
    words = year(int(match[1])) if len(match[1]) == 4 else _words(int(match[1]))
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def _fraction(match: re.Match[str]) -> str:
    whole, above, below = match[1], int(match[2]), int(match[3])
    if (above, below) in ((24, 7), (9, 11)):
        return f"{_words(above)} {_words(below)}"
    if not (0 < above < below and 2 <= below <= 100):
        return f"{cardinal(whole) + ' and ' if whole else ''}{_words(above)} over {_words(below)}"
    name = ordinal(below)
    singular, plural = _FRACTIONS.get(below, (name, f"{name}s"))
    part = f"{_words(above)} {singular if above == 1 else plural}"
    return f"{cardinal(whole)} and {part}" if whole else part


def _dotted(match: re.Match[str]) -> str:
    return f" {' point '.join(cardinal(part) for part in match[0].split('.'))} "


def _year_or_number(number: str) -> str:
    """A plain four-digit number from 1100 to 2099 is far more often a year."""
    is_year = len(number) == 4 and number.isdigit() and 1100 <= int(number) <= 2099
    return year(int(number)) if is_year else cardinal(number)


def _number(match: re.Match[str]) -> str:
    return f" {_year_or_number(match[0])} "


def _hash(match: re.Match[str]) -> str:
    return f"number {cardinal(match[1])}"


_SCALE = r"(?:\s?(?P<scale>thousand|million|billion|trillion|bn|[kKmMBT])\b)?"
_SYMBOL = r"(?P<symbol>US\$|[$€£¥₹₩₽])"
_CODES = "|".join(name for name in _CURRENCIES if name.isalpha())
_UNIT_NAMES = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))

_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), speak)
    for pattern, speak in (
        (r"\b(\d{4})-(\d{2})-(\d{2})\b", _iso_date),
        (r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", _slash_date),
        (rf"\b({_MONTH})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(\d{{4}})\b)?", _month_day),
        (
            rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\b(?:,?\s+(\d{{4}})\b)?",
            _day_month,
        ),
        (
            r"\b(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\s?([AaPp])(?:\.\s?[Mm]\.|[Mm]\b))?(?![\d:])",
            _time,
        ),
        (r"\b(\d{1,2})\s?([AaPp])(?:\.\s?[Mm]\.|[Mm]\b)", _hour),
        (rf"{_SYMBOL}({_NUMBER})-[$€£]?(?=\d)", _money_range),
        (rf"(?P<sign>{_MINUS})?{_SYMBOL}\s?(?P<minus>-)?(?P<amount>{_NUMBER}){_SCALE}", _money),
        (rf"(?P<amount>{_NUMBER}){_SCALE}\s?(?P<symbol>[€£¥₹₩₽]|(?:{_CODES})\b)", _money_after),
        (rf"({_NUMBER})\s?¢", _cents),
        (r"(?<![\d-])(?:\+?\d{1,3}[ -])?(?:\(\d{3}\) ?|\d{3}-)\d{3}-\d{4}(?![\d-])", _phone),
        (r"(?<![\d-])\d{3}-\d{4}(?![\d-])", _phone),
        (rf"(?<![\w.-])({_NUMBER}) ?- ?(?=(?:{_NUMBER})(?![\d-]))", _range),
        (rf"{_MINUS}(?=\.?\d)", _minus),
        (r"(?<![\w:])(\d+):(\d+)(?![\w:])", _score),
        (rf"({_NUMBER})\s?%", _percent),
        (r"(\d+(?:,\d{3})*)(?:st|nd|rd|th)\b", _ordinal),
        (r"'?\b(\d0|\d{3}0)'?s\b", _decade),
        (
            rf"(?<!\^)({_NUMBER})[\s-]?({_UNIT_NAMES})(?:\^?([23]))?(?![\w/°])(?:\.(?=\s+[a-z\d]))?",
            _unit,
        ),
        (r"\^([23])(?!\d)", _power),
        (r"(?<![\w./])(?:(\d+) )?(\d{1,4})/(\d{1,4})(?![\w/])", _fraction),
        (r"#\s?(\d+)", _hash),
        (r"\d+(?:\.\d+){2,}", _dotted),
        (_NUMBER, _number),
    )
)
