    mov r8,QWORD PTR [rdi+0x140]
    test r8,r8
    je 1
    cmp rdx,0x1
    jne 0
    cmp QWORD PTR [rsi+0x8],0x1
    jne 0
    mov rcx,QWORD PTR [rsi]
    movzx eax,WORD PTR [rdi+0x178]
    mov r8d,DWORD PTR [r8]
    test r8b,0x2
    jne 2
0:
    push rax
    add rdi,0x140
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue12ReceiveQueue9post_list]
    add rsp,0x8
    ret
1:
    test rdx,rdx
    mov eax,0x801
    cmove rax,rdx
    xor edx,edx
    ret
2:
    mov r8d,DWORD PTR [rcx+0x8]
    test r8d,r8d
    jle 0
    cmp ax,WORD PTR [rdi+0x17a]
    je 0
    mov edx,DWORD PTR [rdi+0x174]
    and edx,eax
    mov r9d,DWORD PTR [rdi+0x170]
    imul r9,rdx
    add r9,QWORD PTR [rdi+0x148]
    cmp DWORD PTR [rdi+0x16c],0x2
    jb 3
    movups xmm0,XMMWORD PTR [data]
    movups XMMWORD PTR [r9+0x10],xmm0
3:
    mov r10,QWORD PTR [rcx]
    mov ecx,DWORD PTR [rcx+0xc]
    bswap r8d
    bswap ecx
    bswap r10
    mov DWORD PTR [r9],r8d
    mov DWORD PTR [r9+0x4],ecx
    mov QWORD PTR [r9+0x8],r10
    mov rcx,QWORD PTR [rdi+0x150]
    mov rsi,QWORD PTR [rsi+0x10]
    mov QWORD PTR [rcx+rdx*8],rsi
    inc eax
    mov WORD PTR [rdi+0x178],ax
    mov rcx,QWORD PTR [rdi+0x160]
    mov WORD PTR [rcx+0x80],ax
    mov rcx,QWORD PTR [rdi+0x158]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx],eax
    xor eax,eax
    ret
