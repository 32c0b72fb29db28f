"""The environments: typed settings, components, outputs. All differences are in Pulumi.<stack>.yaml."""

import gc

gc.disable()  # a fifth of a run, and all that it would look at, the SDK's ten thousand classes, stays until the end

import pulumi  # noqa: E402 - these are what it would look at
from choices import CLOUDS  # noqa: E402
from everspot.parts import outputs  # noqa: E402
from settings import cluster_name, read_settings  # noqa: E402

settings = read_settings(pulumi.Config(), stack=pulumi.get_stack())
for cloud in settings.clouds:
    CLOUDS[cloud].sign_in()

declared = []
if settings.bootstrap is not None:
    declared.append(CLOUDS[settings.bootstrap.cloud].bootstrap("everspot-bootstrap", settings.bootstrap.args))
if settings.account is not None:
    declared.append(CLOUDS[settings.account.cloud].account("everspot", settings.account.args))
if settings.cluster is not None:
    name = cluster_name(pulumi.get_stack())
    declared.append(CLOUDS[settings.cluster.cloud].cluster(name, settings.cluster.args))
for component in declared:
    for name, value in outputs(component).items():
        pulumi.export(name, value)
