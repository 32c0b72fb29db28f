"""Kinds of objects of Kubernetes, by Pulumi's names, as a reviewer of a change asks for them."""

from everspot_clouds.base.resources import FleetKind, ResourceKinds, TemplateKind

_RECLAIM = "spec.persistentVolumeReclaimPolicy"

KINDS = ResourceKinds(
    fleets={
        "kubernetes:karpenter.sh/v1:NodePool": FleetKind(
            size="spec.limits.nodes",
            template=("spec.template.spec.nodeClassRef",),
            pools=("spec.template.spec.requirements",),
            # Karpenter, "NodePools", spec.limits: a limit keeps nodes from being launched, and ends none.
            lower_ends=lambda _: False,
            chosen_by="Karpenter",
            rolls=lambda _: False,
        ),
    },
    templates={"kubernetes:core/v1:PodTemplate": TemplateKind(image=("template.spec.containers[0].image",))},
    stateful={
        "kubernetes:core/v1:Namespace": "all objects in it and the work of running jobs",
        "kubernetes:core/v1:PersistentVolumeClaim": "what is on the volume, unless its class retains it",
        "kubernetes:core/v1:PersistentVolume": "what is on the volume",
        "kubernetes:core/v1:Secret": "the secret",
    },
    needed={
        # Kubernetes, "Managing Service Accounts": the tokens of a deleted account are no longer valid.
        "kubernetes:core/v1:ServiceAccount": "pods that use it get no credentials any more, and write no checkpoint",
        "pulumi:providers:kubernetes": "its objects are deleted, with the pods in their namespace and their jobs",
    },
    # Kubernetes, "Persistent Volumes", Reclaiming: with Delete, the storage is deleted with the volume.
    kept_unless={"kubernetes:core/v1:PersistentVolume": (_RECLAIM, "Delete")},
    settings={
        "kubernetes:core/v1:PersistentVolume": (
            (_RECLAIM, "Delete", "what is on the volume is deleted with its claim"),
        ),
    },
)
