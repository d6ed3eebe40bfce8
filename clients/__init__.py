"""What people hold in their hands: the HTTP client and the command line, driven by openapi.yaml."""
