"""The tables of cases for AWS, one file for each part."""

import cases_aws_fleets
import cases_aws_machines
import cases_aws_permissions
import cases_aws_storage

CASES = [
    *cases_aws_machines.CASES,
    *cases_aws_storage.CASES,
    *cases_aws_permissions.CASES,
    *cases_aws_fleets.CASES,
]
