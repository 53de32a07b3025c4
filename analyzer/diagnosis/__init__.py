# SPDX-License-Identifier: Apache-2.0
"""What is wrong, as a value that is stepped: summaries and answers in, questions and events out."""
