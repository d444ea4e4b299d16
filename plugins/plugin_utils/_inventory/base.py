# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part that both inventory plugins share: cache, the way into Ansible's inventory, and what a failure leaves."""

from __future__ import annotations

import hashlib
import json
import re

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils import _redaction as redaction
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._inventory import hosts
from ansible_collections.gpufleet.lifecycle.plugins.plugin_utils._screen import display

try:
    from ansible.template import trust_as_template
except ImportError:  # before ansible-core 2.19, where a text is a template unless it is marked

    def trust_as_template(value):
        return value


TEMPLATE = re.compile(r"[{}]|#jinja2:")


def plain(value):
    """VALUE, in which a text that could be taken for a template is marked as none, and every other one as harmless.

    Without the second mark, ansible-inventory --list writes {"__ansible_unsafe": TEXT} from ansible-core 2.19 on.
    """
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, str):
        return value
    return wrap_var(value) if TEMPLATE.search(value) else trust_as_template(str.__str__(value))


class LifecycleInventory(BaseInventoryPlugin, Constructable, Cacheable):
    """An inventory from one source. A subclass has NAME, WORD (the last part of its files' names), ASKS, and reads."""

    # Ansible asks this for the names of constructed groups, which may have texts of nodes in them.
    _sanitize_group_name = staticmethod(hosts.make_safe_group)
    WORD = ""
    ASKS = ()  # options that say what is asked, of whom

    def verify_file(self, path):
        name = path.rsplit("/", 1)[-1]
        ours = any(
            name == self.WORD + ending or name.endswith("." + self.WORD + ending) for ending in (".yml", ".yaml")
        )
        return ours and super().verify_file(path)

    def read(self, path, names):
        """(the hosts, from where in words); raises InventoryProblem."""
        raise NotImplementedError

    def parse(self, inventory, loader, path, cache=True) -> None:
        super().parse(inventory, loader, path, cache)
        try:
            self._read_config_data(path)
            self._populate(self._load_hosts(path, cache))
        except Exception as exc:  # noqa: BLE001 (a subclass reads what others wrote)
            # Ansible goes on with its other sources, unless it is told otherwise: what is left behind stops the
            # playbooks of this collection.
            message = "%s: no inventory from %s. %s" % (
                self.NAME,
                path,
                redaction.redact(exc, limit=4000)
                if isinstance(exc, (AnsibleError, hosts.InventoryProblem))
                else "%s: %s" % (type(exc).__name__, redaction.redact(exc)),
            )
            inventory.set_variable("all", hosts.FAILED, plain(message))
            # Ansible would print the text of a cause as well.
            raise AnsibleParserError(message) from None

    def _load_hosts(self, path, cache):
        used = self.get_option("cache")
        asked = json.dumps({name: self.get_option(name) for name in self.ASKS}, sort_keys=True, default=str)
        key = "%s_%s" % (self.get_cache_key(path), hashlib.sha256(asked.encode("utf-8")).hexdigest()[:12])
        if used and cache:
            try:
                return hosts.check_cache(self._cache[key])
            # A cache that cannot be read, for whatever reason, is asked around.
            except Exception as exc:  # noqa: BLE001
                display.vv(
                    "%s asks its source: nothing usable in the cache (%s)" % (self.NAME, redaction.describe(exc))
                )
        names = hosts.Names()
        found, asked = self.read(path, names)
        groups = {*self.inventory.groups, *(self.get_option("groups") or {})}
        groups.update(group for one in found.values() for group in one["groups"])
        found = hosts.select_usable(found, names, groups)
        for name in names.left_out:
            display.warning("%s: no node can be called %s, which is left out" % (self.NAME, ascii(name)[:300]))
        hosts.require_enough(found, self.get_option("min_nodes"), asked)
        for clash in names.clashes():
            if self.get_option("strict"):
                raise hosts.InventoryProblem(
                    "Different things would share a group: %s. Call them otherwise, or set strict to false." % clash
                )
            display.warning("%s: different things share a group: %s" % (self.NAME, clash))
        if used:
            self._cache[key] = found
        return found

    def _populate(self, found) -> None:
        strict = self.get_option("strict")
        for name in found:
            self.inventory.add_host(name)
        for name, one in sorted(found.items()):
            for group in one["groups"]:
                self.inventory.add_child(self.inventory.add_group(group), name)
            # Texts that others wrote, such as the reason of a drain: never a template.
            variables = plain(one["variables"])
            for key, value in variables.items():
                self.inventory.set_variable(name, key, value)
            self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
            composed = self.inventory.get_host(name).get_vars()
            for key in set(self.get_option("compose") or {}) & set(composed):
                self.inventory.set_variable(name, key, plain(composed[key]))
            self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)

    def _add_host_to_keyed_groups(self, keys, variables, host, strict=False, fetch_hostvars=True) -> None:
        """Make no group of a node's label or reason that means something to the playbooks, or is called as a host."""
        parents = [keyed.get("parent_group") for keyed in keys or [] if isinstance(keyed, dict)]
        self._sanitize_group_name = lambda name: (
            hosts.make_safe_group(name) if name in parents else hosts.keyed_group(name, self.inventory.hosts)
        )
        try:
            super()._add_host_to_keyed_groups(keys, variables, host, strict, fetch_hostvars)
        finally:
            del self._sanitize_group_name
