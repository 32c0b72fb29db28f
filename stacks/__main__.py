"""The environments: typed settings, components, outputs. All differences are in Pulumi.<stack>.yaml."""

import gc

gc.disable()  # a fifth of a run, and all that it would look at, the SDK's ten thousand classes, stays until the end

import pulumi  # noqa: E402 - these are what it would look at
from choices import CHOICES  # noqa: E402
from everspot.parts import outputs  # noqa: E402
from settings import cluster_name, read_settings  # noqa: E402

settings = read_settings(pulumi.Config(), stack=pulumi.get_stack())
for cloud in settings.clouds:
    CHOICES[cloud].sign_in()

names = {"bootstrap": "everspot-bootstrap", "account": "everspot", "cluster": cluster_name(pulumi.get_stack())}
sections = {section: getattr(settings, section) for section in names}
declared = [
    CHOICES[chosen.cloud].declare(section, names[section], chosen.args)
    for section, chosen in sections.items()
    if chosen is not None
]
for component in declared:
    for name, value in outputs(component).items():
        pulumi.export(name, value)
