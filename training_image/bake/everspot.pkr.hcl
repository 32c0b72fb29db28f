# Bakes the machine image on AWS:
#   packer init training_image/bake/everspot.pkr.hcl
#   packer build -var region=us-east-1 -var wheel=dist/everspot-0.1.0-py3-none-any.whl training_image/bake/everspot.pkr.hcl
# With -var image_parameter=/everspot/image/dev, the image's id is written to that Systems Manager parameter, which the
# environments read (`imageParameter`). Needs Packer, the Session Manager plugin and the AWS CLI on this machine.

packer {
  required_version = ">= 1.10.0"
  required_plugins {
    amazon = {
      version = ">= 1.3.3"
      source  = "github.com/hashicorp/amazon"
    }
  }
}

variable "region" {
  type = string
}

variable "wheel" {
  type        = string
  description = "The everspot wheel, built by `uv build --wheel`."
}

variable "base_image_name" {
  type        = string
  # One CUDA toolkit instead of four: jobs bring CUDA in their packages, and what lies on the volume is paid and read.
  default     = "Deep Learning Base AMI with Single CUDA (Ubuntu 24.04) *"
  description = "Name pattern of the image to start from: Linux with systemd and, for GPUs, the driver."
}

variable "base_image_owner" {
  type    = string
  default = "amazon"
}

variable "python" {
  type    = string
  default = "python3.12"
}

variable "build_type" {
  type        = string
  default     = "m7i.large"
  description = "The type of the machine that bakes; the image runs on others too."
}

variable "subnet_id" {
  type    = string
  default = null
}

variable "instance_profile" {
  type        = string
  default     = null
  description = "A profile that lets Systems Manager in (AmazonSSMManagedInstanceCore). null: one for this build alone."
}

variable "image_parameter" {
  type        = string
  default     = ""
  description = "Systems Manager parameter to which the image's id is written; empty: none."
}

variable "manifest" {
  type        = string
  default     = "packer-manifest.json"
  description = "File to which Packer notes what it has built."
}

variable "ssh_interface" {
  type        = string
  default     = "session_manager"
  description = "How Packer reaches the machine; session_manager needs no open port."
}

variable "ssh_cidrs" {
  type        = list(string)
  default     = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
  description = "Addresses that may open SSH connections to the machine, except with session_manager: private ones."
}

variable "kms_key_id" {
  type        = string
  default     = null
  description = "A customer key for the image's snapshot; null: the account's own."
}

variable "commit" {
  type        = string
  default     = ""
  description = "What the wheel was built from (git rev-parse HEAD): `everspot-agent --version` prints it."
}

variable "prepare" {
  type        = list(string)
  default     = []
  description = "Commands before anything is installed, such as with sudo the setup of another source of packages."
}

variable "nvswitch" {
  type        = bool
  default     = true
  description = "Whether the image runs on machines with NVSwitch too: it then gets the driver's fabric manager."
}

data "amazon-ami" "base" {
  region      = var.region
  owners      = [var.base_image_owner]
  most_recent = true
  filters = {
    name                = var.base_image_name
    architecture        = "x86_64"
    root-device-type    = "ebs"
    virtualization-type = "hvm"
  }
}

source "amazon-ebs" "everspot" {
  region        = var.region
  source_ami    = data.amazon-ami.base.id
  instance_type = var.build_type
  subnet_id     = var.subnet_id
  ami_name      = "everspot-{{timestamp}}"

  # Version 2 of the metadata service only, for the machine that bakes and for whatever starts from the image.
  imds_support = "v2.0"
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  encrypt_boot = true
  kms_key_id   = var.kms_key_id

  # A key pair for this build alone; nothing of it stays in the image.
  communicator              = "ssh"
  ssh_username              = "ubuntu"
  ssh_interface             = var.ssh_interface
  iam_instance_profile      = var.instance_profile
  temporary_key_pair_type   = "ed25519"
  ssh_clear_authorized_keys = true

  # Without it Packer opens port 22 to the whole internet.
  temporary_security_group_source_cidrs = var.ssh_cidrs

  # Session Manager needs a profile. Where none is given, Packer makes one of this and removes it (that takes rights on
  # IAM). The actions: AWS Systems Manager User Guide, "Create an IAM role with minimal Session Manager permissions".
  dynamic "temporary_iam_instance_profile_policy_document" {
    for_each = var.instance_profile == null && var.ssh_interface == "session_manager" ? [1] : []
    content {
      Version = "2012-10-17"
      Statement {
        Effect = "Allow"
        Action = [
          "ssm:UpdateInstanceInformation",
          "ssmmessages:CreateControlChannel",
          "ssmmessages:CreateDataChannel",
          "ssmmessages:OpenControlChannel",
          "ssmmessages:OpenDataChannel",
        ]
        Resource = ["*"]
      }
    }
  }

  # The figures of gp3 are those of its base price; older builders of Packer need them.
  launch_block_device_mappings {
    device_name           = "/dev/sda1"
    volume_type           = "gp3"
    iops                  = 3000
    throughput            = 125
    volume_size           = 75
    delete_on_termination = true
  }

  tags = {
    Name              = "everspot"
    "everspot:base"   = "{{ .SourceAMIName }}"
    "everspot:python" = var.python
  }
}

build {
  sources = ["source.amazon-ebs.everspot"]

  # Ubuntu 24.04 gives user namespaces to programs with an AppArmor profile alone; jobs with an image need one. Units of
  # other jobs refuse them.
  provisioner "shell" {
    inline = [
      "mkdir -p /tmp/everspot",
      "echo '-kernel.apparmor_restrict_unprivileged_userns = 0' | sudo tee /etc/sysctl.d/60-everspot.conf",
    ]
  }

  provisioner "file" {
    source      = "${path.root}/"
    destination = "/tmp/everspot"
  }

  provisioner "file" {
    source      = var.wheel
    destination = "/tmp/everspot/${basename(var.wheel)}"
  }

  provisioner "shell" {
    inline = concat(["sudo bash /tmp/everspot/provision.sh --settle"], var.prepare)
  }

  provisioner "shell" {
    inline = ["sudo bash /tmp/everspot/clock.sh aws"]
  }

  provisioner "shell" {
    inline = ["sudo bash /tmp/everspot/provision.sh ${var.nvswitch ? "" : "--no-nvswitch "}${var.commit == "" ? "" : "--commit ${var.commit} "}/tmp/everspot/${basename(var.wheel)} ${var.python}"]
  }

  # The last step: ends with a machine that holds no key, no log and no identity.
  provisioner "shell" {
    inline = ["sudo bash /tmp/everspot/provision.sh --seal"]
  }

  post-processors {
    post-processor "manifest" {
      output     = var.manifest
      strip_path = true
    }

    post-processor "shell-local" {
      inline = ["bash '${path.root}/publish.sh' '${var.manifest}' '${var.region}' '${var.image_parameter}'"]
    }
  }
}
