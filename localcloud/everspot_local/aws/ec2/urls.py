"""The names under which moto looks up this EC2 backend."""

from everspot_local.aws.ec2.responses import LocalEC2Response

url_bases = [r"https?://ec2\.(.+)\.amazonaws\.com(|\.cn)"]

url_paths = {"{0}/": LocalEC2Response.dispatch}
