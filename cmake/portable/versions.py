"""Versions of symbols, such as GLIBC_2.28 and GLIBCXX_3.4.25: a family and a number."""

import re


def family(version):
    return version.rpartition("_")[0]


def number(version):
    return [int(part) for part in re.findall(r"\d+", version.rpartition("_")[2])]


def floors_of(versions):
    """Returns {family: number}."""
    return {family(each): number(each) for each in versions}


def is_allowed(version, floors):
    """Whether a system at the floor has it. Private versions have no number."""
    return bool(number(version)) and number(version) <= floors.get(family(version), [])
