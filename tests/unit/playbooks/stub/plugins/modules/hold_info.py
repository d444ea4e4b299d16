# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.lifecycle.plugins.module_utils import stubnode


def main():
    module = AnsibleModule(argument_spec=dict(timeout_s=dict(type="int")), supports_check_mode=True)
    holds = stubnode.load().get("holds")
    if holds is None:
        module.fail_json(msg="the stub was told nothing")
    module.exit_json(changed=False, holds=holds)


if __name__ == "__main__":
    main()
