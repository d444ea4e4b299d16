# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm answers.

The text and the JSON of 22.05.8 were recorded from slurmctld and slurmd; the JSON of 23.11 is written by its format.
"""

from __future__ import annotations

import json

DRAINING = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=1 CPUEfctv=2 CPUTot=2 CPULoad=8.65
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:a100:4
   NodeAddr=10.213.131.152 NodeHostName=host1 Version=22.05.8
   OS=Linux 6.1.0-56-amd64 #1 SMP PREEMPT_DYNAMIC @0
   RealMemory=1 AllocMem=0 FreeMem=19294 Sockets=2 Boards=1
   State=MIXED+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=batch,debug
   BootTime=2026-11-21T08:38:33 SlurmdStartTime=2026-11-21T22:41:43
   LastBusyTime=2026-11-21T22:47:01
   CfgTRES=cpu=2,mem=1M,billing=2
   AllocTRES=cpu=1
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
   Reason=gpufleet:tok-1 driver upgrade a=b Reason=x [root@2026-11-21T22:47:07]

"""
INVALID = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=8.47
   Gres=gpu:a100:4
   NodeAddr=10.213.131.152 NodeHostName=host1 Version=22.05.8
   State=UNKNOWN+DRAIN+INVALID_REG ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=batch
   BootTime=2026-11-21T08:38:33 SlurmdStartTime=2026-11-21T22:41:16
   Reason=gres/gpu count reported lower than configured (0 < 4) [slurm@2026-11-21T22:41:16]

"""
REBOOTING = """\
NodeName=n2 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=8.47
   Gres=(null)
   NodeAddr=10.213.131.153 NodeHostName=host2 Version=22.05.8
   State=DOWN+DRAIN+REBOOT_ISSUED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   NextState=DOWN
   Partitions=batch
   BootTime=None SlurmdStartTime=2026-11-21T22:48:39
   Reason=gpufleet:tok-1 test : reboot issued [slurm@2026-11-21T22:48:44]

"""
JSON_22 = json.dumps(
    {
        "meta": {"Slurm": {"release": "22.05.8"}},
        "errors": [],
        "nodes": [
            {
                "alloc_cpus": 0,
                "boot_time": 1795250313,
                "comment": "",
                "gres": "gpu:a100:4",
                "gres_used": "gpu:a100:0",
                "name": "n1",
                "hostname": "host1",
                "state": "unknown",
                "state_flags": ["DRAIN", "INVALID_REG"],
                "partitions": ["batch"],
                "reason": "gres/gpu count reported lower than configured (0 < 4)",
                "reason_changed_at": 1795300876,
                "reason_set_by_user": "slurm",
                "slurmd_start_time": 1795300876,
                "slurmd_version": "22.05.8",
            }
        ],
    }
)
JSON_23 = json.dumps(
    {
        "nodes": [
            {
                "name": "n1",
                "hostname": "host1",
                "state": ["MIXED", "DRAIN"],
                "reason": "gpufleet:tok-1 a = \"b\" [x@y]",
                "reason_set_by_user": "root",
                "reason_changed_at": {"set": True, "infinite": False, "number": 1700000000},
                "gres": "gpu:a100:4(S:0-1)",
                "gres_used": "gpu:a100:2(IDX:0,2)",
                "alloc_cpus": 1,
                "boot_time": {"set": True, "infinite": False, "number": 1795250313},
                "slurmd_start_time": {"set": False, "number": 0},
                "partitions": ["batch"],
                "version": "23.11.4",
            }
        ],
        "last_update": {"set": True, "number": 1},
        "meta": {},
        "errors": [],
        "warnings": [],
    }
)

# (return code, standard output, standard error) of scontrol 22.05.8 when something is wrong.
NO_JSON = (1, "", "scontrol: unrecognized option '--json'\nTry \"scontrol --help\" for more information\n")
NO_MUNGE = (
    1,
    "",
    """scontrol: error: If munged is up, restart with --num-threads=10
scontrol: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory (Did you \
start munged?)
scontrol: error: slurm_send_node_msg: auth_g_create: REQUEST_NODE_INFO has authentication error
slurm_load_node error: Protocol authentication error
""",
)
# The same with another key, and with a clock that is 20 minutes ahead or behind; which it is stands in the log of
# slurmctld.
SKEW = (1, "", "slurm_load_node error: Zero Bytes were transmitted or received\n")
AWAY = (1, "", "slurm_load_node error: Unable to contact slurm controller (connect failure)\n")
NO_CONFIG = (
    1,
    "",
    """scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
scontrol: error: fetch_config: DNS SRV lookup failed
scontrol: error: _establish_config_source: failed to fetch config
scontrol: fatal: Could not establish a configuration source
""",
)
NOT_FOUND = (1, "Node nope not found\n", "")
FORBIDDEN = (1, "", "slurm_update error: Invalid user id\n")
JOBS = """1|root|batch|RUNNING|29:57
12_3|kim|batch,debug|SUSPENDED|1-02:00:00
13|kim|batch|PENDING|1:00
14|kim|batch|COMPLETED|0:00
15|kim|batch|COMPLETING|INVALID
"""
