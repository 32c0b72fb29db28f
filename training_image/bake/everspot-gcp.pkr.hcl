# Bakes the machine image on Google Cloud:
#   packer init training_image/bake/everspot-gcp.pkr.hcl
#   packer build -var project=PROJECT -var zone=europe-west4-a -var family=everspot-dev \
#     -var wheel=dist/everspot-0.1.0-py3-none-any.whl training_image/bake/everspot-gcp.pkr.hcl
# The newest image of the family is the one that environments take (`imageFamily`). Needs Packer and the Google Cloud CLI
# on this machine, and a network whose firewall lets Identity-Aware Proxy in (35.235.240.0/20, port 22).

packer {
  required_version = ">= 1.10.0"
  required_plugins {
    googlecompute = {
      # From 1.2.0 on it logs in by OS Login where the project's metadata has it on (step_import_os_login_ssh_key.go):
      # the machine then ignores keys in its metadata.
      version = ">= 1.2.0"
      source  = "github.com/hashicorp/googlecompute"
    }
  }
}

variable "project" {
  type = string
}

variable "zone" {
  type = string
}

variable "wheel" {
  type        = string
  description = "The everspot wheel, built by `uv build --wheel`."
}

variable "family" {
  type        = string
  default     = "everspot-dev"
  description = "The family of the image: environments take its newest one."
}

variable "base_image_family" {
  type        = string
  # Driver 580 is the newest that NVIDIA supports for long. Images with 570 are of before April 2026: Google's own tests
  # pass over them as outdated (GoogleCloudPlatform/cloud-image-tests, test_suites/security, failedImages).
  default     = "ubuntu-accelerator-2404-amd64-with-nvidia-580"
  description = "Family of the image to start from: Linux with systemd and, for GPUs, a driver that is signed for secure boot."
}

variable "base_image_project" {
  type    = string
  default = "ubuntu-os-accelerator-images"
}

variable "python" {
  type    = string
  default = "python3.12"
}

variable "build_type" {
  type        = string
  default     = "n2-standard-4"
  description = "The type of the machine that bakes; the image runs on others too."
}

variable "network" {
  type    = string
  default = "default"
}

variable "subnetwork" {
  type    = string
  default = null
}

variable "external_ip" {
  type        = bool
  default     = true
  description = "Whether the machine that bakes has an external address, through which it installs packages; false where there is NAT."
}

variable "kms_key" {
  type        = string
  default     = null
  description = "A customer key for the image, projects/…/cryptoKeys/NAME; null: one of Google's own."
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

source "googlecompute" "everspot" {
  project_id              = var.project
  zone                    = var.zone
  source_image_family     = var.base_image_family
  source_image_project_id = [var.base_image_project]
  machine_type            = var.build_type
  image_name              = "everspot-{{timestamp}}"
  image_family            = var.family
  disk_size               = 60
  disk_type               = "pd-balanced"
  network                 = var.network
  subnetwork              = var.subnetwork

  # The machine that bakes needs nothing of the project.
  disable_default_service_account = true
  enable_secure_boot              = true
  enable_vtpm                     = true
  enable_integrity_monitoring     = true

  # Nobody can open a connection to it but through Identity-Aware Proxy.
  use_iap          = true
  use_internal_ip  = true
  omit_external_ip = !var.external_ip

  # A key pair for this build alone; nothing of it stays in the image.
  communicator              = "ssh"
  ssh_username              = "packer"
  temporary_key_pair_type   = "ed25519"
  ssh_clear_authorized_keys = true
  metadata = {
    block-project-ssh-keys = "TRUE"
  }

  dynamic "image_encryption_key" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      kmsKeyName = image_encryption_key.value
    }
  }

  image_labels = {
    everspot-python = "${replace(var.python, ".", "-")}"
  }
}

build {
  sources = ["source.googlecompute.everspot"]

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
    inline = ["sudo bash /tmp/everspot/clock.sh gcp"]
  }

  provisioner "shell" {
    inline = ["sudo bash /tmp/everspot/provision.sh ${var.nvswitch ? "" : "--no-nvswitch "}${var.commit == "" ? "" : "--commit ${var.commit} "}/tmp/everspot/${basename(var.wheel)} ${var.python} gcp"]
  }

  # Jobs do not reach Google's resolver, which has the metadata server's address.
  provisioner "shell" {
    inline = ["sudo bash /tmp/everspot/resolver.sh"]
  }

  # The last step: ends with a machine that holds no key, no log and no identity.
  provisioner "shell" {
    inline = ["sudo bash /tmp/everspot/provision.sh --seal"]
  }
}
