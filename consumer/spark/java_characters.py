r"""Determines which characters of topic names have the Java property ``\p{NAME}``.

A topic name contains only the 65 characters ``a-z A-Z 0-9 . _ -``. For each property, this module
lists the characters that have it, as documented for java.util.regex.Pattern and java.lang.Character
(Java 17).
"""

from __future__ import annotations

import string
import unicodedata

NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")


def _name_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


LETTERS = frozenset(string.ascii_letters)
_LOWER, _UPPER = frozenset(string.ascii_lowercase), frozenset(string.ascii_uppercase)
DIGITS = frozenset(string.digits)
_PUNCTUATION = frozenset("._-")
NOTHING = frozenset[str]()

# NAME of \p{NAME} -> the matching characters. NAME is a POSIX class, a method of java.lang.Character, or a
# binary property, script or block of Unicode.
_PROPERTIES: dict[str, frozenset[str]] = {
    "lower": _LOWER,
    "upper": _UPPER,
    "ascii": NAME_CHARACTERS,
    "alpha": LETTERS,
    "digit": DIGITS,
    "alnum": LETTERS | DIGITS,
    "punct": _PUNCTUATION,
    "graph": NAME_CHARACTERS,
    "print": NAME_CHARACTERS,
    "blank": NOTHING,
    "cntrl": NOTHING,
    "xdigit": frozenset(string.hexdigits),
    "space": NOTHING,
    "javalowercase": _LOWER,
    "javauppercase": _UPPER,
    "javatitlecase": NOTHING,
    "javaalphabetic": LETTERS,
    "javaletter": LETTERS,
    "javadigit": DIGITS,
    "javaletterordigit": LETTERS | DIGITS,
    "javaideographic": NOTHING,
    "javawhitespace": NOTHING,
    "javaspacechar": NOTHING,
    "javamirrored": NOTHING,
    "javaisocontrol": NOTHING,
    "javadefined": NAME_CHARACTERS,
    "javajavaidentifierstart": LETTERS | {"_"},
    "javajavaidentifierpart": LETTERS | DIGITS | {"_"},
    "javaunicodeidentifierstart": LETTERS,
    "javaunicodeidentifierpart": LETTERS | DIGITS | {"_"},
    "isalphabetic": LETTERS,
    "isideographic": NOTHING,
    "isletter": LETTERS,
    "islowercase": _LOWER,
    "isuppercase": _UPPER,
    "istitlecase": NOTHING,
    "ispunctuation": _PUNCTUATION,
    "iscontrol": NOTHING,
    "iswhite_space": NOTHING,
    "isdigit": DIGITS,
    "ishex_digit": frozenset(string.hexdigits),
    "isjoin_control": NOTHING,
    "isnoncharacter_code_point": NOTHING,
    "isassigned": NAME_CHARACTERS,
    "islatin": LETTERS,
    "iscommon": NAME_CHARACTERS - LETTERS,
    "inbasic_latin": NAME_CHARACTERS,
    "inbasiclatin": NAME_CHARACTERS,
}
_POSIX_CLASSES = tuple(_PROPERTIES)[:13]  # The POSIX classes are the first names in `_PROPERTIES`.
# Maps a name in lower case to Java's spelling. The names are those that are case-sensitive in Java: POSIX
# classes, and properties that are named after methods of `Character`.
_JAVA_SPELLINGS = {
    **{name: name.capitalize() for name in _POSIX_CLASSES},
    "ascii": "ASCII",
    "xdigit": "XDigit",
    "javalowercase": "javaLowerCase",
    "javauppercase": "javaUpperCase",
    "javatitlecase": "javaTitleCase",
    "javaalphabetic": "javaAlphabetic",
    "javaletter": "javaLetter",
    "javadigit": "javaDigit",
    "javaletterordigit": "javaLetterOrDigit",
    "javaideographic": "javaIdeographic",
    "javawhitespace": "javaWhitespace",
    "javaspacechar": "javaSpaceChar",
    "javamirrored": "javaMirrored",
    "javaisocontrol": "javaISOControl",
    "javadefined": "javaDefined",
    "javajavaidentifierstart": "javaJavaIdentifierStart",
    "javajavaidentifierpart": "javaJavaIdentifierPart",
    "javaunicodeidentifierstart": "javaUnicodeIdentifierStart",
    "javaunicodeidentifierpart": "javaUnicodeIdentifierPart",
}
# The properties for which Java does not distinguish upper, lower and title case under the flag (?i).
_CASE_PROPERTIES = _name_set(
    "Lu Ll Lt lower upper javalowercase javauppercase javatitlecase islowercase isuppercase istitlecase"
)
_CATEGORIES = _name_set(
    "Cn Lu Ll Lt Lm Lo Mn Me Mc Nd Nl No Zs Zl Zp Cc Cf Co Cs Pd Ps Pe Pc Po Sm Sc Sk So Pi Pf "
    "L M N Z C P S LC LD L1 all"
)


def property_named(name: str, ignore_case: bool) -> frozenset[str] | None:
    r"""Return the characters of topic names that have the property ``\p{name}``; None if it is unknown."""
    category = name.removeprefix("Is")
    if category in _CATEGORIES:
        return LETTERS if ignore_case and category in _CASE_PROPERTIES else _characters_of_category(category)
    lower = name.lower()
    # For names without an entry in `_JAVA_SPELLINGS`, Java only requires the prefix "Is" or "In".
    spelling = _JAVA_SPELLINGS.get(lower, name[:2].capitalize() + name[2:])
    if lower not in _PROPERTIES or name != spelling:
        return None
    return LETTERS if ignore_case and lower in _CASE_PROPERTIES else _PROPERTIES[lower]


def _characters_of_category(name: str) -> frozenset[str]:
    """Return the characters of topic names in a general category of Unicode.

    Java also defines names for unions of categories, such as "LC" for "Lu", "Ll" and "Lt".
    """
    subcategories = {"LC": ("Lu", "Ll", "Lt"), "LD": ("L", "Nd"), "L1": ("",), "all": ("",)}.get(
        name, (name,)
    )
    return frozenset(c for c in NAME_CHARACTERS if unicodedata.category(c).startswith(subcategories))
