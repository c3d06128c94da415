"""Tests compile what they test: a plan that an earlier one kept would hide the compiler. tests/python/test_kept_plans.py has those of
kept plans, which change this for themselves."""

import os

os.environ["TBX_CACHE_PLANS"] = "0"
