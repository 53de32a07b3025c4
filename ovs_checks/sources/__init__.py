# SPDX-License-Identifier: Apache-2.0
"""The rim: where a snapshot comes from, which is a live Open vSwitch or what was kept of one."""
