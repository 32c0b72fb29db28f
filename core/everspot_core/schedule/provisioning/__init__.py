"""Provisioning: capacity that is launched for jobs and released again, and standing instances that are let go."""
