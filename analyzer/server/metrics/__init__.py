# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of the analyzer: families, their samples, one scrape."""
