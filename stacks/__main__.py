"""The environments: typed settings in, components, outputs. Everything that differs stands in Pulumi.<stack>.yaml."""

import pulumi
from everspot import AccountSetup, AccountSetupArgs, TrainingCluster, TrainingClusterArgs
from everspot.asking import check_signed_in
from settings import cluster_name, read_settings

settings = read_settings(pulumi.Config(), stack=pulumi.get_stack())
check_signed_in()

if settings.account is not None:
    account: AccountSetupArgs = settings.account
    setup = AccountSetup("everspot", account)
    pulumi.export("fleetRoleName", setup.fleet_role_name)
    pulumi.export("spotRoleName", setup.spot_role_name)

if settings.cluster is not None:
    spec: TrainingClusterArgs = settings.cluster
    cluster = TrainingCluster(cluster_name(pulumi.get_stack()), spec)
    pulumi.export("cluster", cluster.cluster)
    pulumi.export("controlUrl", cluster.control_url)
    pulumi.export("dataUrl", cluster.data_url)
    pulumi.export("queueUrl", cluster.queue_url)
    pulumi.export("onDemandFleetId", cluster.on_demand_fleet_id)
    pulumi.export("spotFleetId", cluster.spot_fleet_id)
    pulumi.export("launchTemplateId", cluster.launch_template_id)
    pulumi.export("imageId", cluster.image_id)
    pulumi.export("schedulerGroup", cluster.scheduler_group)
    pulumi.export("agentRoleArn", cluster.agent_role_arn)
    pulumi.export("schedulerRoleArn", cluster.scheduler_role_arn)
    pulumi.export("vpcId", cluster.vpc_id)
    pulumi.export("subnetIds", cluster.subnet_ids)
    pulumi.export("securityGroupId", cluster.security_group_id)
    pulumi.export("region", cluster.region)
