# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the pages of Ansible's own documentation by the labels and variables that antsibull-docs refers to."""

from __future__ import annotations

import re

ANSIBLE = "https://docs.ansible.com/ansible/latest/"
OURS = "gpufleet.lifecycle."
LABELS = {
    "action_plugins": "plugins/action.html#action-plugins",
    "ansible_configuration_settings": "reference_appendices/config.html#ansible-configuration-settings",
    "callback_plugins": "plugins/callback.html#callback-plugins",
    "collections_keyword": "collections_guide/collections_using_playbooks.html#collections-keyword",
    "common_return_values": "reference_appendices/common_return_values.html#common-return-values",
    "list_of_callback_plugins": "collections/index_callback.html#list-of-callback-plugins",
    "list_of_collections": "collections/index.html#list-of-collections",
}
PLUGIN = re.compile(r"ansible_collections\.([a-z0-9_]+)\.([a-z0-9_]+)\.([a-z0-9_.]+?_[a-z]+)(?:__.*)?")


def find_url(label: str) -> str | None:
    """Return the URL of a label of Ansible or of another collection; None for any other label."""
    if label in LABELS:
        return ANSIBLE + LABELS[label]
    found = PLUGIN.fullmatch(label)
    if not found or label.startswith("ansible_collections." + OURS):
        return None
    return ANSIBLE + "collections/{0}/{1}/{2}.html".format(*found.groups())


def find_variable_url(name: str) -> str | None:
    """Return the URL of an environment variable of Ansible itself; None for any other."""
    return ANSIBLE + "reference_appendices/config.html#envvar-" + name if name.startswith("ANSIBLE_") else None
