"""Setup of the tests of the models."""

import pytest

# A failed assertion in a helper shows its values too.
pytest.register_assert_rewrite("agreement_cases", "period_cases")
